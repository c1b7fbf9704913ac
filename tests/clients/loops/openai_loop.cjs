// A tool loop with the official OpenAI library: node openai_loop.cjs URL PROMPT. Prints the last answer.
"use strict";
const { execSync } = require("node:child_process");
const OpenAI = require("openai");

const PARAMETERS = { type: "object", properties: { command: { type: "string" } }, required: ["command"] };
const TOOL = { name: "bash", description: "Runs a command in a shell", parameters: PARAMETERS };
const TURNS_MAX = 8;

async function main(url, prompt) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
  const messages = [
    { role: "system", content: "You are a careful assistant. ".repeat(60) },
    { role: "user", content: prompt },
  ];
  for (let turn = 0; turn < TURNS_MAX; turn++) {
    const stream = client.chat.completions.stream({
      model: "llmd",
      messages,
      tools: [{ type: "function", function: TOOL }],
      session_id: "openai-npm",
    });
    const message = await stream.finalMessage();
    messages.push(message);
    if (!message.tool_calls || message.tool_calls.length === 0) {
      console.log(message.content);
      return;
    }
    for (const call of message.tool_calls) {
      const { command } = JSON.parse(call.function.arguments);
      messages.push({ role: "tool", tool_call_id: call.id, content: execSync(command, { shell: "/bin/bash" }).toString() });
    }
  }
  throw new Error(`no end after ${TURNS_MAX} turns`);
}

main(process.argv[2], process.argv[3]).catch((error) => {
  console.error(error);
  process.exit(1);
});
