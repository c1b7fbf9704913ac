// A tool loop with the AI SDK: node ai_sdk_loop.cjs URL PROMPT. Prints the last answer.
"use strict";
const { execSync } = require("node:child_process");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { isStepCount, jsonSchema, streamText, tool } = require("ai");

const PARAMETERS = { type: "object", properties: { command: { type: "string" } }, required: ["command"] };
const TURNS_MAX = 8;

async function main(url, prompt) {
  const llmd = createOpenAICompatible({ name: "llmd", baseURL: `${url}/v1`, apiKey: "none" });
  const bash = tool({
    description: "Runs a command in a shell",
    inputSchema: jsonSchema(PARAMETERS),
    execute: async ({ command }) => execSync(command, { shell: "/bin/bash" }).toString(),
  });
  const answer = streamText({
    model: llmd("llmd"),
    instructions: "You are a careful assistant. ".repeat(60),
    prompt,
    tools: { bash },
    stopWhen: isStepCount(TURNS_MAX),
    onError: ({ error }) => {
      throw error;
    },
  });
  console.log(await answer.text);
}

main(process.argv[2], process.argv[3]).catch((error) => {
  console.error(error);
  process.exit(1);
});
