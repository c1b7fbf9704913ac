/* chat_families.h: minimal chat templates, one for each family of models, with answers of such models. */
#ifndef CHAT_FAMILIES_H
#define CHAT_FAMILIES_H

#include <stdbool.h>
#include <stddef.h>

#include "chat_families_special.h"

#define FAMILY_SYSTEM                                                                                                  \
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
#define FAMILY_OTHERS                                                                                                  \
    "{% elif m.role == 'tool' %}<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n"      \
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
#define FAMILY_CALLS "{% for c in m.tool_calls or [] %}"

#define FAMILY_PLAIN                                                                                                   \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"                         \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

#define FAMILY_ALTERNATING                                                                                             \
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}{% for m in messages %}"   \
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"    \
    "<|im_start|>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"   \
    "{% if add_generation_prompt %}<|im_start|>model\n{% endif %}"

#define FAMILY_HERMES_CALL                                                                                             \
    "\n<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n"       \
    "</tool_call>{% endfor %}<|im_end|>\n"
#define FAMILY_HERMES                                                                                                  \
    FAMILY_SYSTEM                                                                                                      \
    "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n{{ m.content }}" FAMILY_CALLS         \
        FAMILY_HERMES_CALL FAMILY_OTHERS "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
#define FAMILY_QWEN3                                                                                                   \
    FAMILY_SYSTEM "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n"                       \
                  "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ "         \
                  "m.content }}" FAMILY_CALLS FAMILY_HERMES_CALL FAMILY_OTHERS                                         \
                  "{% if add_generation_prompt %}<|im_start|>assistant\n"                                              \
                  "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif "   \
                  "%}{% endif %}"

#define FAMILY_CODER_CALL                                                                                              \
    "\n<tool_call>\n<function={{ c.function.name }}>\n{% for k, v in c.function.arguments.items() %}"                  \
    "<parameter={{ k }}>\n{{ v }}\n</parameter>\n{% endfor %}</function>\n</tool_call>{% endfor %}<|im_end|>\n"
#define FAMILY_CODER                                                                                                   \
    FAMILY_SYSTEM                                                                                                      \
    "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n{{ m.content }}" FAMILY_CALLS         \
        FAMILY_CODER_CALL FAMILY_OTHERS "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
#define FAMILY_QWEN35                                                                                                  \
    FAMILY_SYSTEM                                                                                                      \
    "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n"                                     \
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content "             \
    "}}" FAMILY_CALLS FAMILY_CODER_CALL FAMILY_OTHERS "{% if add_generation_prompt %}<|im_start|>assistant\n"          \
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% else %}<think>\n"       \
    "{% endif %}{% endif %}"

#define FAMILY_LLAMA                                                                                                   \
    "{{ bos_token }}<|start_header_id|>system<|end_header_id|>\n\n"                                                    \
    "{% if tools %}{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}<|eot_id|>"                            \
    "{% for m in messages %}{% if m.tool_calls %}<|start_header_id|>assistant<|end_header_id|>\n\n"                    \
    "{\"name\": \"{{ m.tool_calls[0].function.name }}\", \"parameters\": "                                             \
    "{{ m.tool_calls[0].function.arguments | tojson }}}<|eot_id|>"                                                     \
    "{% elif m.role == 'tool' %}<|start_header_id|>ipython<|end_header_id|>\n\n{{ m.content | tojson }}<|eot_id|>"     \
    "{% else %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>{% endif %}{% endfor %}"   \
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"

#define FAMILY_MISTRAL_TOOLS                                                                                           \
    "{{ bos_token }}{% if tools %}[AVAILABLE_TOOLS][{% for t in tools %}{{ t | tojson }}{% endfor %}]"                 \
    "[/AVAILABLE_TOOLS]{% endif %}{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]"        \
    "{% elif m.role == 'system' %}[INST]{{ m.content }}\n[/INST]"
#define FAMILY_MISTRAL_ID                                                                                              \
    "{% if c.id is not defined or c.id | length != 9 %}{{ raise_exception('ids have 9 letters or digits') }}{% endif " \
    "%}"
#define FAMILY_NEMO                                                                                                    \
    FAMILY_MISTRAL_TOOLS                                                                                               \
    "{% elif m.tool_calls %}[TOOL_CALLS][" FAMILY_CALLS FAMILY_MISTRAL_ID                                              \
    "{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}, \"id\": \"{{ c.id "     \
    "}}\"}"                                                                                                            \
    "{% if not loop.last %}, {% endif %}{% endfor %}]{{ eos_token }}"                                                  \
    "{% elif m.role == 'tool' %}[TOOL_RESULTS]{\"content\": {{ m.content }}, \"call_id\": \"{{ m.tool_call_id }}\"}"   \
    "[/TOOL_RESULTS]{% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
#define FAMILY_SMALL                                                                                                   \
    FAMILY_MISTRAL_TOOLS                                                                                               \
    "{% elif m.role == 'assistant' %}{{ m.content }}" FAMILY_CALLS FAMILY_MISTRAL_ID                                   \
    "[TOOL_CALLS]{{ c.function.name }}[CALL_ID]{{ c.id }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}"        \
    "{{ eos_token }}{% elif m.role == 'tool' %}[TOOL_RESULTS]{{ m.tool_call_id }}[TOOL_CONTENT]{{ m.content }}"        \
    "[/TOOL_RESULTS]{% endif %}{% endfor %}"

#define DS_OPEN "<\357\275\234"
#define DS_CLOSE "\357\275\234>"
#define DS_GAP "\342\226\201"
#define DS(one, two) DS_OPEN one DS_GAP two DS_CLOSE
#define DS3(one, two, three) DS_OPEN one DS_GAP two DS_GAP three DS_CLOSE
#define FAMILY_R1                                                                                                      \
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<\357\275\234User\357\275\234>{{ m.content }}"     \
    "{% elif m.role == 'system' %}{{ m.content }}{% elif m.role == 'assistant' %}"                                     \
    "<\357\275\234Assistant\357\275\234>{% if m.tool_calls %}{{ m.content }}" DS3("tool", "calls", "begin")            \
        FAMILY_CALLS DS3("tool", "call", "begin") "function" DS(                                                       \
            "tool", "sep") "{{ c.function.name }}\n```json\n{{ c.function.arguments | tojson "                         \
                           "}}\n```" DS3("tool", "call", "end") "{% endfor %}" DS3(                                    \
                               "tool", "calls", "end") "{{ eos_token }}{% else %}"                                     \
                                                       "{% if '</think>' in "                                          \
                                                       "m.content %}{{ "                                               \
                                                       "m.content.split('</"                                           \
                                                       "think>')[-1] }}{% else "                                       \
                                                       "%}{{ m.content }}{% endif "                                    \
                                                       "%}"                                                            \
                                                       "{{ eos_token }}{% endif "                                      \
                                                       "%}{% elif m.role == 'tool' "                                   \
                                                       "%}" DS3("tool", "outputs", "begin") "{{ m.content }}" DS3(     \
                                                           "tool", "outputs", "end") "{% endif %}{% "                  \
                                                                                     "endfor %}"                       \
                                                                                     "{% if "                          \
                                                                                     "add_generation_"                 \
                                                                                     "prompt "                         \
                                                                                     "%}<"                             \
                                                                                     "\357\275\234Assi"                \
                                                                                     "stant\357\275"                   \
                                                                                     "\234><think>\n{%"                \
                                                                                     " endif %}"

#define FAMILY_OSS                                                                                                     \
    "<|start|>system<|message|>Valid channels: analysis, commentary, final.<|end|>"                                    \
    "{% if tools %}<|start|>developer<|message|>{% for t in tools %}{{ t | tojson }}{% endfor %}<|end|>{% endif %}"    \
    "{% for m in messages %}{% if m.role == 'assistant' and m.tool_calls %}"                                           \
    "{% if m.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}"            \
    "<|start|>assistant to=functions.{{ m.tool_calls[0].function.name }}<|channel|>commentary json<|message|>"         \
    "{{ m.tool_calls[0].function.arguments | tojson }}<|call|>"                                                        \
    "{% elif m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>"              \
    "{% elif m.role == 'tool' %}<|start|>functions to=assistant<|channel|>commentary<|message|>"                       \
    "{{ m.content | tojson }}<|end|>{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}"       \
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"

#define FAMILY_GEMMA4                                                                                                  \
    "{#- OpenAI Chat Completions: -#}{{ bos_token }}<|turn>system\n{% if tools %}{% for t in tools %}"                 \
    "<|tool>declaration:{{ t.function.name }}<tool|>{% endfor %}{% endif %}<turn|>\n"                                  \
    "{% for m in messages %}{% if m.role == 'tool' %}<|tool_response>response:{{ m.content }}<tool_response|>"         \
    "{% else %}<|turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content }}" FAMILY_CALLS                \
    "{{ '<|tool_call>call:' + c.function.name }}{{ c.function.arguments | tojson }}<tool_call|>{% endfor %}"           \
    "<turn|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|turn>model\n{% endif %}"

#define FAMILY_GLM                                                                                                     \
    "[gMASK]<sop>{% if tools %}<|system|>\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}"              \
    "{% for m in messages %}{% if m.role == 'assistant' %}<|assistant|>"                                               \
    "{% if m.reasoning_content %}\n<think>{{ m.reasoning_content }}</think>{% else %}\n<think></think>{% endif %}"     \
    "{% if m.content %}\n{{ m.content }}{% endif %}" FAMILY_CALLS "\n<tool_call>{{ c.function.name }}\n"               \
    "{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>\n"                                       \
    "<arg_value>{{ v if v is string else v | tojson }}</arg_value>\n{% endfor %}</tool_call>{% endfor %}"              \
    "{% elif m.role == 'tool' %}<|observation|>\n<tool_response>\n{{ m.content }}\n</tool_response>"                   \
    "{% else %}<|{{ m.role }}|>\n{{ m.content }}{% endif %}{% endfor %}"                                               \
    "{% if add_generation_prompt %}<|assistant|>{% if enable_thinking is defined and not enable_thinking %}\n"         \
    "<think></think>{% endif %}{% endif %}"

#define FAMILY_KIMI                                                                                                    \
    "{% if tools %}<|im_system|>tool_declare<|im_middle|>{{ tools | tojson }}<|im_end|>{% endif %}"                    \
    "{% for m in messages %}<|im_{{ m.role }}|>{{ m.role }}<|im_middle|>"                                              \
    "{% if m.role == 'assistant' %}<think>{{ m.reasoning_content or '' }}</think>{% endif %}{{ m.content }}"           \
    "{% if m.tool_calls %}<|tool_calls_section_begin|>" FAMILY_CALLS                                                   \
    "<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>{{ c.function.arguments | tojson }}<|tool_call_end|>"    \
    "{% endfor %}<|tool_calls_section_end|>{% endif %}<|im_end|>{% endfor %}"                                          \
    "{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}"

#define FAMILY_COMMAND                                                                                                 \
    "{{ bos_token }}<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{% if tools %}{% for t in tools %}{{ t | tojson }}\n"       \
    "{% endfor %}{% endif %}<|END_OF_TURN_TOKEN|>{% for m in messages %}<|START_OF_TURN_TOKEN|>"                       \
    "{% if m.role == 'assistant' %}<|CHATBOT_TOKEN|>{% if m.tool_calls %}<|START_THINKING|>{{ m.reasoning_content }}"  \
    "<|END_THINKING|><|START_ACTION|>[\n" FAMILY_CALLS                                                                 \
    "    {\"tool_call_id\": \"{{ loop.index0 }}\", \"tool_name\": \"{{ c.function.name }}\", \"parameters\": "         \
    "{{ c.function.arguments | tojson }}}{% if not loop.last %},{% endif %}\n{% endfor %}]<|END_ACTION|>{% else %}"    \
    "{% if m.reasoning_content %}<|START_THINKING|>{{ m.reasoning_content }}<|END_THINKING|>{% endif %}"               \
    "<|START_RESPONSE|>{{ m.content }}<|END_RESPONSE|>{% endif %}{% else %}<|USER_TOKEN|>{{ m.content }}{% endif %}"   \
    "<|END_OF_TURN_TOKEN|>{% endfor %}"                                                                                \
    "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}"

#define FAMILY_INVOKE                                                                                                  \
    "]~!b[]~b]system\n" SPECIAL_TOOLS                                                                                  \
    "[e~[\n{% for m in messages %}{% if m.role == 'assistant' %}]~b]ai\n{% if m.reasoning_content %}<think>\n"         \
    "{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}{% if m.tool_calls %}\n<minimax:tool_call>\n"    \
    "{% for c in m.tool_calls %}<invoke name=\"{{ c.function.name }}\">\n" SPECIAL_VALUES                              \
    "<parameter name=\"{{ k }}\">" SPECIAL_VALUE                                                                       \
    "</parameter>\n{% endfor %}</invoke>\n{% endfor %}</minimax:tool_call>{% endif %}[e~[\n"                           \
    "{% else %}]~b]{{ m.role }}\n{{ m.content }}[e~[\n{% endif %}{% endfor %}"                                         \
    "{% if add_generation_prompt %}]~b]ai\n<think>\n{% endif %}"

typedef struct chat_family {
    const char *name;
    const char *source;
    const char *call;    /* a call of get_weather for Paris, as models of this family write it */
    const char *thought; /* the reasoning "hm" before an answer; NULL if the models have no reasoning */
    const char *before_text, *after_text;
    bool always_thinks;
    const char *twice; /* two such calls in one answer; NULL if an answer has at most one call */
} chat_family;

#define FAMILY_PARIS "{\"city\": \"Paris\"}"

/* clang-format off */
#define HERMES_CALL "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " FAMILY_PARIS "}\n</tool_call>"
#define CODER_CALL                                                                                                     \
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
#define NEMO_CALL "{\"name\": \"get_weather\", \"arguments\": " FAMILY_PARIS ", \"id\": \"abcdefghi\"}"
#define SMALL_CALL "[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]" FAMILY_PARIS
#define R1_CALL                                                                                                        \
    DS3("tool", "call", "begin") "function" DS("tool", "sep") "get_weather\n```json\n" FAMILY_PARIS "\n```"            \
    DS3("tool", "call", "end")
#define GEMMA4_CALL "<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>}<tool_call|>"
#define GLM_CALL "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>"
#define KIMI_CALL(n) "<|tool_call_begin|>functions.get_weather:" n "<|tool_call_argument_begin|>" FAMILY_PARIS "<|tool_call_end|>"
#define COMMAND_CALL(n) "    {\"tool_call_id\": \"" n "\", \"tool_name\": \"get_weather\", \"parameters\": " FAMILY_PARIS "}"

#define INVOKE_CALL "<invoke name=\"get_weather\">\n<parameter name=\"city\">Paris</parameter>\n</invoke>\n"

static const chat_family chat_families[] = {
    {"hermes", FAMILY_HERMES, HERMES_CALL, NULL, "", "", false, HERMES_CALL "\n" HERMES_CALL},
    {"qwen3", FAMILY_QWEN3, HERMES_CALL, "<think>\nhm\n</think>\n\n", "", "", false, HERMES_CALL "\n" HERMES_CALL},
    {"coder", FAMILY_CODER, CODER_CALL, NULL, "", "", false, CODER_CALL "\n" CODER_CALL},
    {"qwen35", FAMILY_QWEN35, CODER_CALL, "hm\n</think>\n\n", "", "", true, CODER_CALL "\n" CODER_CALL},
    {"llama", FAMILY_LLAMA, "{\"name\": \"get_weather\", \"parameters\": " FAMILY_PARIS "}", NULL, "", "", false, NULL},
    {"nemo", FAMILY_NEMO, "[TOOL_CALLS][" NEMO_CALL "]", NULL, "", "", false, "[TOOL_CALLS][" NEMO_CALL ", " NEMO_CALL "]"},
    {"small", FAMILY_SMALL, SMALL_CALL, NULL, "", "", false, SMALL_CALL SMALL_CALL},
    {"r1", FAMILY_R1, DS3("tool", "calls", "begin") R1_CALL DS3("tool", "calls", "end"), "hm</think>\n\n", "", "", true,
     DS3("tool", "calls", "begin") R1_CALL R1_CALL DS3("tool", "calls", "end")},
    {"oss", FAMILY_OSS, "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>" FAMILY_PARIS,
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant", "<|channel|>final<|message|>", "", false, NULL},
    {"gemma4", FAMILY_GEMMA4, GEMMA4_CALL, "<|channel>thought\nhm<channel|>", "", "", false, GEMMA4_CALL GEMMA4_CALL},
    {"glm", FAMILY_GLM, GLM_CALL, "\n<think>hm</think>\n", "", "", false, GLM_CALL "\n" GLM_CALL},
    {"kimi", FAMILY_KIMI, "<|tool_calls_section_begin|>" KIMI_CALL("0") "<|tool_calls_section_end|>", "<think>hm</think>",
     "", "", false, "<|tool_calls_section_begin|>" KIMI_CALL("0") KIMI_CALL("1") "<|tool_calls_section_end|>"},
    {"command", FAMILY_COMMAND, "<|START_ACTION|>[\n" COMMAND_CALL("0") "\n]<|END_ACTION|>",
     "<|START_THINKING|>hm<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", false,
     "<|START_ACTION|>[\n" COMMAND_CALL("0") ",\n" COMMAND_CALL("1") "\n]<|END_ACTION|>"},
    {"invoke", FAMILY_INVOKE, "<minimax:tool_call>\n" INVOKE_CALL "</minimax:tool_call>", "hm\n</think>\n\n", "", "", true,
     "<minimax:tool_call>\n" INVOKE_CALL INVOKE_CALL "</minimax:tool_call>"},
    SPECIAL_FAMILIES
    {"plain", FAMILY_PLAIN, HERMES_CALL, NULL, "", "", false, HERMES_CALL "\n" HERMES_CALL},
    {"alternating", FAMILY_ALTERNATING, HERMES_CALL, NULL, "", "", false, HERMES_CALL "\n" HERMES_CALL},
};
/* clang-format on */

#endif
