/* chat_families_special.h: minimal chat templates of the other families for which llama.cpp has a special parser. */
#ifndef CHAT_FAMILIES_SPECIAL_H
#define CHAT_FAMILIES_SPECIAL_H

#define SPECIAL_TOOLS "{% if tools %}{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}"
#define SPECIAL_CALLS "{% for c in m.tool_calls or [] %}"
#define SPECIAL_VALUES "{% for k, v in c.function.arguments.items() %}"
#define SPECIAL_VALUE "{{ v if v is string else v | tojson }}"
#define SPECIAL_JSON "{{ c.function.arguments | tojson }}"

#define FAMILY_MINISTRAL                                                                                               \
    "{{ bos_token }}{% if tools %}[AVAILABLE_TOOLS]" SPECIAL_TOOLS "[/AVAILABLE_TOOLS]{% endif %}"                     \
    "{% for m in messages %}{% if m.role == 'system' %}[SYSTEM_PROMPT]{{ m.content }}[/SYSTEM_PROMPT]"                 \
    "{% elif m.role == 'user' %}[INST]{{ m.content }}[/INST]"                                                          \
    "{% elif m.role == 'tool' %}[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]"                                          \
    "{% else %}{{ m.content }}" SPECIAL_CALLS "[TOOL_CALLS]{{ c.function.name }}[ARGS]" SPECIAL_JSON                   \
    "{% endfor %}{{ eos_token }}{% endif %}{% endfor %}"

#define FAMILY_K3                                                                                                      \
    "{% if tools %}<|open|>message role=\"system\" type=\"tools\"<|sep|>" SPECIAL_TOOLS                                \
    "<|close|>message<|sep|><|end_of_msg|>{% endif %}"                                                                 \
    "{% for m in messages %}<|open|>message role=\"{{ m.role }}\"<|sep|>{% if m.role == 'assistant' %}"                \
    "<|open|>think<|sep|>{{ m.reasoning_content }}<|close|>think<|sep|><|open|>response<|sep|>{{ m.content }}"         \
    "<|close|>response<|sep|>{% if m.tool_calls %}<|open|>tools<|sep|>" SPECIAL_CALLS                                  \
    "<|open|>call tool=\"{{ c.function.name }}\" index=\"{{ loop.index }}\"<|sep|>" SPECIAL_VALUES                     \
    "<|open|>argument key=\"{{ k }}\" type=\"string\"<|sep|>" SPECIAL_VALUE "<|close|>argument<|sep|>{% endfor %}"     \
    "<|close|>call<|sep|>{% endfor %}<|close|>tools<|sep|>{% endif %}{% else %}{{ m.content }}{% endif %}"             \
    "<|close|>message<|sep|><|end_of_msg|>{% endfor %}"                                                                \
    "{% if add_generation_prompt %}<|open|>message role=\"assistant\"<|sep|><|open|>think<|sep|>{% endif %}"

#define FAMILY_LING3                                                                                                   \
    "{% if tools %}<role>SYSTEM</role>" SPECIAL_TOOLS "<|role_end|>{% endif %}{% for m in messages %}"                 \
    "{% if m.role == 'assistant' %}<role>ASSISTANT</role>"                                                             \
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}" SPECIAL_CALLS     \
    "<tool_call>{{ c.function.name }}" SPECIAL_VALUES "<arg_key>{{ k }}</arg_key><arg_value>" SPECIAL_VALUE            \
    "</arg_value>{% endfor %}</tool_call>{% endfor %}"                                                                 \
    "{% else %}<role>{{ 'OBSERVATION' if m.role == 'tool' else m.role | upper }}</role>{{ m.content }}{% endif %}"     \
    "<|role_end|>{% endfor %}{% if add_generation_prompt %}<role>ASSISTANT</role><think>{% endif %}"

#define FAMILY_COHERE2                                                                                                 \
    "{{ bos_token }}<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>" SPECIAL_TOOLS                                             \
    "<|END_OF_TURN_TOKEN|>{% for m in messages %}<|START_OF_TURN_TOKEN|>{% if m.role == 'assistant' %}"                \
    "<|CHATBOT_TOKEN|><|START_THINKING|>{{ m.reasoning_content }}<|END_THINKING|>{% if m.tool_calls %}"                \
    "<|START_ACTION|>[\n" SPECIAL_CALLS "    {\"tool_call_id\": \"{{ loop.index0 }}\", \"tool_name\": \"{{ "           \
    "c.function.name }}\", \"parameters\": " SPECIAL_JSON                                                              \
    "}{% if not loop.last %},{% endif %}\n{% endfor %}]<|END_ACTION|>"                                                 \
    "{% else %}<|START_TEXT|>{{ m.content }}<|END_TEXT|>{% endif %}"                                                   \
    "{% elif m.role == 'tool' %}<|SYSTEM_TOKEN|><|START_TOOL_RESULT|>{{ m.content }}<|END_TOOL_RESULT|>"               \
    "{% else %}<|USER_TOKEN|>{{ m.content }}{% endif %}<|END_OF_TURN_TOKEN|>{% endfor %}"                              \
    "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|>{% endif %}"

#define FAMILY_LFM_CALL                                                                                                \
    "{% if m.tool_calls %}<|tool_call_start|>[" SPECIAL_CALLS "{{ c.function.name }}(" SPECIAL_VALUES                  \
    "{{ k }}={{ v | tojson }}{% if not loop.last %}, {% endif %}{% endfor %}){% if not loop.last %}, {% endif %}"      \
    "{% endfor %}]<|tool_call_end|>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"                                 \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
#define FAMILY_LFM2                                                                                                    \
    "{{ bos_token }}{% if tools %}<|im_start|>system\nList of tools: <|tool_list_start|>[" SPECIAL_TOOLS               \
    "]<|tool_list_end|><|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n" FAMILY_LFM_CALL
#define FAMILY_LFM25                                                                                                   \
    "{{ bos_token }}{% if tools %}<|im_start|>system\nList of tools: [" SPECIAL_TOOLS                                  \
    "]<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n"                                        \
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}" FAMILY_LFM_CALL

#define FAMILY_GIGACHAT                                                                                                \
    "{% if tools %}system<|role_sep|>\n" SPECIAL_TOOLS "<|message_sep|>\n\n{% endif %}{% for m in messages %}"         \
    "{% if m.role == 'assistant' and m.tool_calls %}assistant<|role_sep|>\n{{ m.content }}<|message_sep|>\n\n"         \
    "function call<|role_sep|>\n{\"name\": \"{{ m.tool_calls[0].function.name }}\", \"arguments\": "                   \
    "{{ m.tool_calls[0].function.arguments | tojson }}}"                                                               \
    "{% else %}{{ 'function result' if m.role == 'tool' else m.role }}<|role_sep|>\n{{ m.content }}{% endif %}"        \
    "<|message_sep|>\n\n{% endfor %}{% if add_generation_prompt %}assistant<|role_sep|>\n{% endif %}"

#define MM "]<]minimax[>["
#define FAMILY_MINIMAX                                                                                                 \
    "]~!b[]~b]system\n" SPECIAL_TOOLS "[e~[\n{% for m in messages %}{% if m.role == 'assistant' %}]~b]ai\n"            \
    "{% if m.reasoning_content %}<mm:think>{{ m.reasoning_content }}</mm:think>{% endif %}{{ m.content }}"             \
    "{% if m.tool_calls %}" MM "<tool_call>\n" SPECIAL_CALLS MM                                                        \
    "<invoke name=\"{{ c.function.name }}\">\n" SPECIAL_VALUES MM "<{{ k }}>" SPECIAL_VALUE MM                         \
    "</{{ k }}>\n{% endfor %}" MM "</invoke>\n{% endfor %}" MM                                                         \
    "</tool_call>{% endif %}[e~[\n{% else %}]~b]{{ m.role }}\n{{ m.content }}[e~[\n{% endif %}{% endfor %}"            \
    "{% if add_generation_prompt %}]~b]ai\n{% endif %}"

#define DSML_TOKEN "\357\275\234DSML\357\275\234"
#define FAMILY_DSML                                                                                                    \
    "{% set dsml_token = '" DSML_TOKEN "' %}{{ bos_token }}" SPECIAL_TOOLS "{% for m in messages %}"                   \
    "{% if m.role == 'assistant' %}<\357\275\234Assistant\357\275\234>"                                                \
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"                   \
    "{% if m.tool_calls %}\n\n<{{ dsml_token }}function_calls>\n" SPECIAL_CALLS                                        \
    "<{{ dsml_token }}invoke name=\"{{ c.function.name }}\">\n" SPECIAL_VALUES                                         \
    "<{{ dsml_token }}parameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">" SPECIAL_VALUE   \
    "</{{ dsml_token }}parameter>\n{% endfor %}</{{ dsml_token }}invoke>\n{% endfor %}"                                \
    "</{{ dsml_token }}function_calls>{% endif %}{{ eos_token }}{% elif m.role == 'user' %}"                           \
    "<\357\275\234User\357\275\234>{{ m.content }}{% else %}{{ m.content }}{% endif %}{% endfor %}"                    \
    "{% if add_generation_prompt %}<\357\275\234Assistant\357\275\234>{% endif %}"

#define FAMILY_MINICPM                                                                                                 \
    "{% if tools %}<|im_start|>system\nTool usage guidelines: call.\n" SPECIAL_TOOLS "<|im_end|>\n{% endif %}"         \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"                                  \
    "<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}" SPECIAL_CALLS                         \
    "<function name=\"{{ c.function.name }}\">" SPECIAL_VALUES "<param name=\"{{ k }}\">" SPECIAL_VALUE                \
    "</param>{% endfor %}</function>{% endfor %}<|im_end|>\n{% endfor %}"                                              \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

#define FAMILY_MUSE                                                                                                    \
    "<|start|>system<|message|>" SPECIAL_TOOLS "<|eot|>{% for m in messages %}{% if m.role == 'assistant' %}"          \
    "{% if m.reasoning_content %}<|start|>assistant to=self<|message|>{{ m.reasoning_content }}<|eom|>{% endif %}"     \
    "{% if m.content or not m.tool_calls %}<|start|>assistant to=user<|message|>{{ m.content }}<|eot|>{% endif "       \
    "%}" SPECIAL_CALLS "<|start|>assistant to={{ c.function.name }}<|message|><atem:function_calls>\n"                 \
    "<atem:invoke name=\"{{ c.function.name }}\">\n" SPECIAL_VALUES "<atem:parameter name=\"{{ k }}\">" SPECIAL_VALUE  \
    "</atem:parameter>\n{% endfor %}</atem:invoke>\n"                                                                  \
    "</atem:function_calls>{{ '<|eot|>' if loop.last else '<|eom|>' }}{% endfor %}"                                    \
    "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|eot|>{% endif %}{% endfor %}"                          \
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"

#define SPECIAL_PARIS "{\"city\": \"Paris\"}"

/* clang-format off */
#define MINISTRAL_CALL "[TOOL_CALLS]get_weather[ARGS]" SPECIAL_PARIS
#define K3_CALL(n)                                                                                                     \
    "<|open|>call tool=\"get_weather\" index=\"" n "\"<|sep|><|open|>argument key=\"city\" type=\"string\"<|sep|>Paris"   \
    "<|close|>argument<|sep|><|close|>call<|sep|>"
#define LING3_CALL "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>"
#define COHERE2_CALL(n)                                                                                                \
    "    {\"tool_call_id\": \"" n "\", \"tool_name\": \"get_weather\", \"parameters\": " SPECIAL_PARIS "}"
#define LFM2_CALL "get_weather(city=\"Paris\")"
#define MINIMAX_CALL MM "<invoke name=\"get_weather\">\n" MM "<city>Paris" MM "</city>\n" MM "</invoke>\n"
#define DSML_CALL                                                                                                      \
    "<" DSML_TOKEN "invoke name=\"get_weather\">\n<" DSML_TOKEN "parameter name=\"city\" string=\"true\">Paris"          \
    "</" DSML_TOKEN "parameter>\n</" DSML_TOKEN "invoke>\n"
#define DSML_CALLS(calls) "<" DSML_TOKEN "function_calls>\n" calls "</" DSML_TOKEN "function_calls>"
#define MINICPM_CALL "<function name=\"get_weather\"><param name=\"city\">Paris</param></function>"
#define MUSE_CALL                                                                                                      \
    " to=tools<|message|><atem:function_calls>\n<atem:invoke name=\"get_weather\">\n<atem:parameter name=\"city\">Paris"   \
    "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>"

#define SPECIAL_FAMILIES                                                                                               \
    {"ministral", FAMILY_MINISTRAL, MINISTRAL_CALL, "[THINK]hm[/THINK]", "", "", false, MINISTRAL_CALL MINISTRAL_CALL}, \
    {"k3", FAMILY_K3, "<|open|>tools<|sep|>" K3_CALL("1") "<|close|>tools<|sep|>", "hm<|close|>think<|sep|>",          \
     "<|open|>response<|sep|>", "<|close|>response<|sep|>", true,                                                      \
     "<|open|>tools<|sep|>" K3_CALL("1") K3_CALL("2") "<|close|>tools<|sep|>"},                                        \
    {"ling3", FAMILY_LING3, LING3_CALL, "hm</think>", "", "", true, LING3_CALL LING3_CALL},                            \
    {"cohere2", FAMILY_COHERE2, "<|START_ACTION|>[\n" COHERE2_CALL("0") "\n]<|END_ACTION|>", "hm<|END_THINKING|>",      \
     "<|START_TEXT|>", "<|END_TEXT|>", true,                                                                           \
     "<|START_ACTION|>[\n" COHERE2_CALL("0") ",\n" COHERE2_CALL("1") "\n]<|END_ACTION|>"},                             \
    {"lfm2", FAMILY_LFM2, "<|tool_call_start|>[" LFM2_CALL "]<|tool_call_end|>", NULL, "", "", false,                  \
     "<|tool_call_start|>[" LFM2_CALL ", " LFM2_CALL "]<|tool_call_end|>"},                                            \
    {"lfm25", FAMILY_LFM25, "<|tool_call_start|>[" LFM2_CALL "]<|tool_call_end|>", "<think>hm</think>", "", "", false, \
     "<|tool_call_start|>[" LFM2_CALL ", " LFM2_CALL "]<|tool_call_end|>"},                                            \
    {"gigachat", FAMILY_GIGACHAT,                                                                                      \
     "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"get_weather\", \"arguments\": " SPECIAL_PARIS "}",      \
     NULL, "", "", false, NULL},                                                                                       \
    {"minimax", FAMILY_MINIMAX, MM "<tool_call>\n" MINIMAX_CALL MM "</tool_call>", "<mm:think>hm</mm:think>", "", "",  \
     false, MM "<tool_call>\n" MINIMAX_CALL MINIMAX_CALL MM "</tool_call>"},                                           \
    {"dsml", FAMILY_DSML, DSML_CALLS(DSML_CALL), "<think>hm</think>", "", "", false, DSML_CALLS(DSML_CALL DSML_CALL)}, \
    {"minicpm", FAMILY_MINICPM, MINICPM_CALL, "<think>\nhm\n</think>\n\n", "", "", true, MINICPM_CALL MINICPM_CALL},    \
    {"muse", FAMILY_MUSE, MUSE_CALL, " to=self<|message|>hm<|eom|><|start|>assistant", " to=user<|message|>", "",      \
     false, MUSE_CALL "<|eom|><|start|>assistant" MUSE_CALL},
/* clang-format on */

#endif
