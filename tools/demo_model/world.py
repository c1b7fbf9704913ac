"""What the model knows: itself, llmd, politeness, and that it does not know the rest."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tools.demo_model.phrases import expand
from tools.demo_model.words import Vocabulary, invented_word

UNKNOWN = "I don't know. I am only a small demonstration model. You can load a real one with --model."


@dataclass(frozen=True, slots=True)
class Topic:
    """Questions that have one answer; `held` questions are for the evaluation only."""

    tag: str
    answer: str
    ask: tuple[str, ...]
    held: tuple[str, ...]


_IDENTITY = "I am llmd-demo, a small demonstration model. You can load a real model with --model."

# fmt: off
TOPICS: tuple[Topic, ...] = (
    Topic("self", _IDENTITY, (
        "[What|Who] are you?", "[Who am I talking to|Who is this|Who is there]?", "Tell me about yourself.",
        "[What is|What's|Tell me] your name?", "What are you called?", "[Are you|Is this] [ChatGPT|a human|a real model|an AI|a person|a bot]?",
        "[Introduce yourself|Describe yourself].", "What kind of model [are you|is this]?", "Which model [are you|is this|do you use]?",
        "Do you have a name?", "[What is llmd-demo|Who is llmd-demo]?", "How are you called?", "Your name?", "[What should I say to you|How should I call you|What may I call you|What do I call you]?", "[Please introduce yourself|Introduce yourself please|Now introduce yourself].", "[And what are you|So who are you|Who exactly are you|What sort of thing are you]?",
        "[What|Who] [am I speaking to|am I chatting with|is answering me|is this model|do I have here]?", "[Say|Give me|May I know|May I have|I want to know|I would like to know] your name[.|, please.]", "[Are you|Is this] [a machine|a computer|a program|a robot|an assistant|GPT|a large model|alive|human|someone real]?",
        "[Which|What] name [do you have|do you go by|were you given|is yours]?", "[What|Which] [kind|sort|type] of [assistant|program|chatbot|bot|thing] are you?", "[Can|Could|Would] you [introduce yourself|say who you are|tell me who you are|tell me your name]?", "[Who|What] are you, [please|really|exactly|then]?",
        "[Tell me|Say|Explain] [who|what] you are.", "[What is|What's] the name of [this|the] model?", "[I do not know who you are|I wonder who you are|We have not met yet, who are you|So you are a model, which one|Name of this model]?", "[Present yourself|Say something about yourself|A few words about yourself|Your name, please].",
    ), ("What should I call you?", "Please introduce yourself to me.", "And who are you?", "What sort of model are you?")),
    Topic("self", "I can remember what you tell me in this session, do small sums, count, spell, make lists and call tools.", (
        "What can you do?", "[How can you help me|What can you help with|What are you good at|What do you do]?", "Help.", "What are you for?",
        "[Which|What] skills do you have?", "What can I ask you?", "[Can you|Could you] help me?", "What should I ask you?", "Show me what you can do.", "[What are you able to do|Which things can you do|What skills have you got|Tell me your skills|List your skills|What else can you do]?",
        "What [all|else|exactly] can you [do|do for me|offer]?", "[What|Which] [tasks|jobs|work|requests] can you [do|handle|take on]?", "[How|In what way] can you be [useful|of use|of help] [to me|]?", "[What do you know how to do|What are your talents|What are your abilities|What can you offer|What is your job|What is your purpose|What use are you]?",
        "[Tell me|Show me|Explain|Say|List] what you [can do|are able to do|are good at|can help with].", "[I need help|Help me|Please help me|I need some help|Give me some help].", "[What may I ask|What can one ask|What can I use you for|What should I try|What can I do with you|What do I do here]?", "[Do you have|Have you got] [any skills|any talents|any abilities]?",
    ), ("What are your skills?", "What things can you do?")),
    Topic("self", "I was trained from scratch by the code in tools/demo_model. I have a few million parameters.", (
        "Who made you?", "How were you [made|trained|built|created]?", "Who [trained|built|created] you?", "How [big|large|small] are you?",
        "How many parameters do you have?", "Where do you come from?", "What data were you trained on?", "[Who was it that trained you|Was it hard to train you|How exactly were you made]?",
        "[Who|Which people] [wrote|programmed|designed|developed|invented] you?", "[Where|When|In what way|From what] were you [made|trained|built|created|developed]?", "[What is|Tell me] your size[.|?]", "[How many|What number of] [weights|parameters|numbers] [are in you|have you got|does this model have]?",
        "[Who is|Who was] your [maker|creator|author|developer|trainer]?", "[Tell me|Explain|Say] [how you were made|how you were trained|who made you|where you come from|how big you are].", "[What were you made from|What made you|What were you trained with|From where do you come|Who is behind you]?", "[Are you|Is this model] [large|small|big|tiny]?", "[Which company|What company|Which team] [made|built|trained] you?",
    ), ("Who was it that made you?", "How were you trained, exactly?")),
    Topic("llmd", "llmd is a daemon that loads a model once and serves many sessions from it, each with its own memory.", (
        "What is llmd?", "[Explain|Describe] llmd.", "What does llmd do?", "Tell me about llmd.", "What is this program?", "What is this [daemon|server|software]?",
        "[Why should I use|What can I do with|What is the point of] llmd?", "How does llmd work?", "What is llmd for?",
        "[Can you|Could you|Would you|Please] [explain|describe] llmd[?|.|, please.]", "[What|Which] [kind|sort] of [program|software|thing|tool|server] is llmd?", "[What is|What's] llmd [good for|used for|about|in short|all about]?", "[I want to know|I would like to know|Can you say|Can you tell me|Do you know] what llmd [does|is for|is]?",
        "[Who needs|When do I need|Why do people use|Why is there|What is so good about|What is special about] llmd?", "[What am I running|What is running here|Which program is this|What server is this|Which software is this|What is serving you]?", "[The daemon, what is it|What does the daemon do|What does this server do|What does this program do]?", "llmd, [what is that|what does it do|what is it for]?",
    ), ("Tell me what llmd is.", "What exactly is llmd?")),
    Topic("llmd", "A session is one conversation with its own memory. It is named by a session_id, and sessions never see each other.", (
        "What is a session?", "[Explain|Describe] sessions.", "What are sessions?", "How do sessions work?", "[What does|What is] session_id [mean|do]?",
        "What is a session in llmd?", "Tell me about sessions.", "How do I [start|name|create|open] a session?", "What is a session id?",
        "[Can|Do] sessions see each other?", "How do I keep two conversations apart?", "[Can I have|Are there] two sessions?",
        "[Can you|Could you|Would you] [explain|describe|tell me about] [sessions|a session|session_id]?", "[Define|Tell me what is|Say what is|What do you call] a session.", "[What is|What's] [the point|the use|the idea] of [a session|sessions]?", "[Why do I need|Why are there|Why should I use|When do I use] [sessions|a session|a session id]?",
        "[Which|What] session [am I in|is this|do I use]?", "[How do|Where do] I [get|find|choose|set|give] [a session|a session id|the session_id]?", "[How are|Are] sessions [kept apart|separated|private|shared]?", "[Does|Can] one session [see|read|know] [another|the other one|other sessions]?", "[What is|Explain] the session_id[.|?]", "[I do not understand sessions|I want to know about sessions|I have a question about sessions].",
    ), ("What do you mean by a session?", "Please explain what a session is.")),
    Topic("llmd", "A reset clears the memory of a session and keeps its place: POST /v1/sessions/{id}/reset.", (
        "What is a reset?", "How do I reset [a|this|the|my] session?", "What does reset do?", "How can I [clear|erase|wipe] [a|this] session?",
        "[What happens|What is lost] after a reset?", "Explain reset.", "How do I make you forget [everything|me|all]?", "Reset the session.", "How do I start over?",
        "[Forget everything|Forget me|Forget all].", "How does reset work?", "What is the difference between reset and close?",
        "[How|In what way] [can I|may I|do we|should I|must I] reset [a session|the session|it|my memory|this conversation]?", "[Clear|Erase|Wipe|Empty|Delete] [the memory|this session|my session|your memory|the session].", "[How do I|How can I|Can I] [empty|wipe|clean|erase|delete] [your memory|the memory|the session]?",
        "[I want to|I need to|Let me|Can I] [start again|start over|reset the session|begin again|start from zero].", "[What does|What will] a reset [do|clear|delete|change|mean]?", "[What is|What's] the [use|point|effect] of [a reset|reset]?", "[Which|What] [call|request|command|endpoint] [resets|clears|empties] a session?", "[Can|Does|Will] a [session be reset|reset delete my facts|reset clear the memory]?", "[Tell me about|Describe|Define] [a reset|the reset|reset].",
    ), ("What happens when I reset a session?", "How does one reset a session?")),
    Topic("llmd", "Capacity is the number of sessions that fit. When it is full, the least recently used idle session is parked.", (
        "What is capacity?", "How many sessions [are there|can you hold|fit|can I have|are possible]?", "What happens when [capacity is full|there is no room|memory is full]?",
        "Explain capacity.", "What does capacity_exhausted mean?", "Is there a limit on sessions?", "What if there are too many sessions?", "Why did I get 429?",
        "[Can you|Could you|Would you] [explain|describe|define] capacity?", "[What is|What's] the [capacity|limit|maximum|largest number of sessions]?", "[How much|What] capacity [is there|do you have|has llmd]?", "[How many|What number of] [users|conversations|chats|sessions] [can llmd serve|can llmd hold|does llmd keep|are allowed|go in]?",
        "[What if|What happens if|What does llmd do when] [everything is full|the memory is full|all places are taken|no session fits]?", "[Tell me about|Describe|Define|Say what is] capacity.", "[What is|Why do I see|What means|I got the error|Help with] capacity_exhausted?", "[Is|When is] the [server|capacity|memory] full?", "[What is|What does] [error 429|status 429|429] mean?", "[Can I open|May I open|Can there be] [more|many|a thousand|too many] sessions?",
    ), ("What does capacity mean in llmd?", "How many sessions can there be?")),
    Topic("llmd", "A parked session was moved out of the model's memory. It comes back warm when you use it.", (
        "What is a parked session?", "What does [park|parked|parking] mean?", "Where do idle sessions go?", "Explain parking.", "How do I park a session?", "What is parking?",
        "[Can you|Could you|Would you] [explain|describe|define] [parking|parked sessions|a parked session]?", "[What happens to|What becomes of|Where is] [a parked session|an idle session|a session that is parked|a parked one]?", "[Tell me about|Describe|Define] [parking|parked sessions].", "[What does llmd|How does llmd|When does llmd] park[ a session|]?",
        "[When|How|Why] [is a session|are sessions|does a session get] parked?", "[Is|Will|Can] a parked session [lost|gone|come back|return|forget]?", "[How do I|Can I] [wake|use|unpark|get back] a parked session?", "[What is|What's] the [use|point|meaning] of [parking|park]?", "[Where do sessions go|Where are sessions put] when [they are idle|nobody uses them]?",
    ), ("What does it mean that a session is parked?", "Why is my session parked?")),
    Topic("llmd", "With warm resume, only the new part of a conversation is processed. What is already in memory is reused.", (
        "What is warm resume?", "[Explain|Describe] warm resume.", "What does [warm|warm resume] mean?", "How does warm resume work?", "Why is the second turn [fast|faster|so fast]?",
        "What is prefix reuse?", "What are cached tokens?", "Why is it so fast?", "What does it mean to resume warm?",
        "[Can you|Could you|Would you] [explain|describe|define] [warm resume|prefix reuse|resuming warm]?", "[Tell me about|Define|Say something on] [warm resume|prefix reuse|cached tokens].", "[What is|What's] the [use|point|idea|benefit] of [warm resume|prefix reuse|a warm session]?", "[Why is|Why are] [a second turn|the next turn|later turns|a long chat|this chat] [quick|faster|so quick|fast]?",
        "[What is|When is] a session warm?", "[What|How much] is [reused|cached|kept|processed again]?", "[Does|Will|Must] llmd [read everything again|process it all again|reuse the prefix|reuse the memory]?", "[When do I get|How do I get|Why do I want] [a warm resume|cached tokens|prefix reuse]?", "[Resume warm|Warm resume|Cached tokens|Prefix reuse], what is [that|it]?", "[How is|How does] [a conversation|a chat|a session] [resumed|continue warm]?",
    ), ("What is meant by warm resume?", "Please explain warm resume to me.")),
    Topic("llmd", "A checkpoint is a saved state after a number of tokens, so that a session can go back without starting again.", (
        "What is a checkpoint?", "[Explain|Describe] checkpoints.", "What are checkpoints?", "How do checkpoints work?", "Why are there checkpoints?", "What does a checkpoint do?",
        "What are checkpoints for?", "When are checkpoints used?",
        "[Can you|Could you|Would you] [explain|describe|define] [checkpoints|a checkpoint]?", "[Define|Describe|Explain to me] a checkpoint.", "[What is|What's] the [use|point|idea|meaning] of [a checkpoint|checkpoints]?", "[Why|When|How] does llmd [make|save|keep|use] [checkpoints|a checkpoint]?",
        "[How do I|Can I|How can I] [make|use|get|set] a checkpoint?", "[Where are|How many] checkpoints [stored|kept|are there|does a session have]?", "[I want to know|I would like to know|Do you know|Can you say] what a checkpoint [is|does|means]?", "[How can|How does|Can] a session go back?", "[Checkpoint|Checkpoints], what [is that|are they]?", "[What is|Why is] a state saved [as a checkpoint|in a checkpoint]?",
    ), ("What is a checkpoint good for?", "Tell me what checkpoints are.")),
    Topic("llmd", "A snapshot is a whole session as bytes. It lets a session survive a restart.", (
        "What is a snapshot?", "[Explain|Describe] snapshots.", "What are snapshots?", "Do sessions survive a restart?", "What happens after a restart?", "How do I save a session?",
        "What is a snapshot for?", "What happens when llmd stops?",
        "[Can you|Could you|Would you] [explain|describe|define] [snapshots|a snapshot]?", "[Define|Describe|Tell me about] [a snapshot|snapshots].", "[What is|What's] the [use|point|idea|meaning] of [a snapshot|snapshots]?", "[How do I|Can I|How can I] [make|take|get|load] a snapshot?",
        "[Does|Will|Can|How can] a session [survive|live through|outlive] a restart?", "[What is left|What is lost|Is everything lost|Is my session lost|What happens to my session] [after a restart|when llmd restarts|at a restart]?", "[How do I|How can I|Can I] [keep|store|save] [my session|a whole session|the session|all of it]?", "[I want to know|Do you know|Can you say] what a snapshot [is|does|means]?", "[Snapshot|Snapshots], what [is that|are they]?",
    ), ("What is a snapshot good for?", "Will my session survive a restart?")),
    Topic("llmd", "A fork is a new session that starts as a copy of another one.", (
        "What is a fork?", "[Explain|Describe] forks.", "How do I [copy|fork|duplicate] a session?", "What does fork do?", "Can I copy a session?", "What are forks?", "What is forking?",
        "[Can you|Could you|Would you] [explain|describe|define] [forks|a fork|forking]?", "[Define|Describe|Tell me about] [a fork|forks|forking].", "[What is|What's] the [use|point|idea|meaning] of [a fork|forks|forking]?", "[How can I|Can I|How do we|May I] [fork|copy|clone|duplicate|branch] [this session|my session|a conversation|one]?",
        "[What happens|What do I get] when I fork [a session|]?", "[Why|When] [would I|should I|do I] fork [a session|]?", "[Is there|How do I get|How do I make] a copy of [a session|my session|another session]?", "[I want to know|Do you know|Can you say] what [a fork|forking] [is|does|means]?", "[Fork|A fork|Forks], what [is that|does it mean]?",
    ), ("What is a fork good for?", "What does it mean to fork a session?")),
    Topic("llmd", "llmctl is the command line tool of llmd. It shows, resets and closes sessions.", (
        "What is llmctl?", "[Explain|Describe] llmctl.", "How do I use llmctl?", "What does llmctl do?", "Is there a command line tool?", "How do I [list|see|show] the sessions?",
        "Which sessions are there?", "How do I close a session?", "What command shows the sessions?", "How do I control llmd?",
        "[Can you|Could you|Would you] [explain|describe|show me] llmctl?", "[What is|What's] llmctl [for|used for|about]?", "[What can I do|What do I do|What is possible] with llmctl?", "[Which|What] [tool|program|command] [lists|closes|resets|manages] [sessions|the sessions|my sessions]?",
        "[How can I|Can I|Where do I] [list|see|close|end|delete|manage] [sessions|all sessions|a session|my sessions]?", "[Is there|Have you got|What is] [a tool|a command|a program] for the [command line|shell|terminal]?", "[I want to know|Do you know|Can you say] what llmctl [is|is for]?", "llmctl, [what is that|what is it for|how do I use it]?", "[Show me|List|Close] [all sessions|the open sessions|a session].", "[Define|Help with|Say something about] llmctl.",
    ), ("What is llmctl good for?", "Tell me what llmctl does.")),
    Topic("llmd", "Start with README.md. ARCHITECTURE.md explains how llmd works inside.", (
        "Where [are the docs|is the documentation|is the manual]?", "What should I read?", "Where can I [read|learn] more?", "Is there [documentation|a manual|a guide]?",
        "Where do I find the docs?", "Which file should I read first?", "How do I learn more about llmd?", "Show me the docs.", "What is in README.md?", "What is in ARCHITECTURE.md?",
        "[Where|How] [can I|do I|could I] [find|get|see|open] [the manual|a guide|the guide|help|instructions|the documents]?", "[Which|What] [document|page|text|file] [should I read|do I read|explains llmd|is the manual|is a good start]?", "[Show me|Give me|I need|I want|I am looking for] [the documentation|the manual|a guide|some docs|the readme].",
        "[Is there|Do you have|Have you got] [a readme|anything to read|a handbook|an introduction|docs|help]?", "[Where is|What is|Who needs] the [readme|README|handbook|guide]?", "[Where is it|Where is llmd] [explained|documented|described]?", "[I want to|I would like to|How can I] [read about llmd|learn about llmd|read more|understand llmd].", "[Where do I|How do I] [start reading|begin to read|begin]?", "[What does|What is] ARCHITECTURE.md [explain|for|about]?",
    ), ("In which file are the docs?", "Where can I find documentation about llmd?")),
    Topic("llmd", "Start llmd with --model and the path of a GGUF file.", (
        "How do I load a [real|better|bigger|different|larger] model?", "How do I use [another|my own|a real|a better|a bigger] model?", "How do I change the model?",
        "Which models can llmd load?", "What is --model?", "What does --model do?", "How do I start llmd with a model?", "Can I use another model?", "What is a GGUF file?", "Can you load a better model?",
        "[How can I|Can I|How should I|How may I] [use|load|run|start|try] [another model|a real model|a better one|a GGUF file|a big model]?", "[Which|What] [option|flag|argument|setting] [chooses|loads|sets|changes] the model?", "[I want|I need|I would like] [a better model|a real model|another model|a larger model|to change the model].",
        "[Where do I|How do I|How must I] [put|give|set|choose|replace] [the model|my model|a model file|the GGUF file]?", "[Which|What] [files|model files|formats|format] [does llmd load|can I load|does llmd read|do I need]?", "[What is|What's|Explain] [GGUF|the --model option|the model option]?", "[Can llmd|Does llmd|Will llmd] [load|run|serve|use] [my model|a real model|other models|Llama|big models]?", "[Load|Use|Start|Run] [a real model|another model|a better model].",
    ), ("How can I load my own model?", "How do I switch to a real model?")),
    Topic("llmd", "Send a POST to /v1/chat/completions with your messages and a session_id.", (
        "How do I send a message?", "What is the endpoint?", "Which endpoint do I use?", "How do I use the API?", "How do I call llmd over HTTP?", "What is the API?",
        "How do I chat over HTTP?", "What URL do I use?", "Is there an API?", "Is llmd compatible with OpenAI?",
        "[How can I|Can I|How may I|How do we] [send a request|send messages|ask llmd|talk to llmd|use HTTP|send a prompt]?", "[What is|What's|Tell me|Give me|Show me] the [URL|path|address|endpoint|API] [for chat|of llmd|for messages|to use|for a request].", "[Where do I|Where should I|Where can I] [send|post|put] [a message|my messages|a request|a question]?",
        "[Which|What] [path|address|route|request|URL] [do I need|is it|do I call|takes messages|should I post to]?", "[How is|How does one] [a message sent|the API used|use the API|a request made|send a request]?", "[Does llmd|Can llmd] [have an API|speak HTTP|talk HTTP|work with the OpenAI client]?", "[Explain|Describe|Tell me about|Show me] the [API|HTTP API|endpoint].", "[I want to|I need to|I would like to] [call|use] [the API|llmd over HTTP].",
    ), ("Which URL does the API have?", "How can I call the API?")),
    Topic("llmd", "Yes, but only within this session. After a reset I know nothing of it.", (
        "[Do|Can|Will] you remember [me|things|what I say|what I tell you|this]?", "Do you have a memory?", "How good is your memory?", "Can you remember things?", "Will you remember this tomorrow?",
        "[Can you|Will you|Do you|Could you] [keep in mind|memorize|store|retain|not forget] [what I say|things|facts|this|my words|what I tell you]?", "[Is there|Have you got|What about] [a memory|some memory|your memory|memory in you]?", "[How long|For how long] [do you remember|will you remember|does your memory last|can you remember]?",
        "[Will you|Do you|Can you] forget [me|this|what I said|things|all of it]?", "[Do you still know|Will you still know|Will you know] [this later|me later|me tomorrow|it tomorrow]?", "[Tell me about|Describe|Explain] your memory.", "Are you [good at remembering|forgetful|any good at remembering]?", "Is your memory [good|bad|large]?", "[What can you remember|How much can you remember|Do you never forget|Do you learn from me]?",
    ), ("Are you able to remember things?", "Do you have any memory?")),
    Topic("chat", "I am fine, thank you. How can I help you?", (
        "How are you [||today|doing]?", "How do you [feel|do]?", "How is it going?", "Are you okay?", "How's it going?", "What's up?", "How are things?", "[Are you fine|Are you feeling well|Are you doing well|How are you feeling this evening|How are you doing]?",
        "[How are you|How do you do|How goes it] [tonight|this evening|then|my friend|now|at the moment]?", "[Is everything|Is all] [okay|fine|good|well|alright] [with you|there|]?", "[How was|How is] your [day|morning|evening|week]?", "[Are you|Do you feel] [good|okay|happy|fine|alright] [today|now|]?", "[What is new|What is going on|How have you been|How do things go|All good|Everything okay|How is life|You okay]?", "[I hope you are well|I hope you are fine], [how are you|are you]?",
    ), ("How are you doing this morning?", "Are you well?")),
    Topic("chat", "You're welcome!", (
        "[Thanks|Thank you|Thanks a lot|Many thanks|Thank you very much|Thx|Great, thanks|Thanks for your help]!", "[Thank you|Thanks].", "thanks", "That was helpful.", "Well done!",
        "Good job!", "Thanks, that helps.", "thank you so much", "[I want to thank you|I thank you very much|Thank you, model|A million thanks]!",
        "[Thanks|Thank you|Many thanks|My thanks|Big thanks] [for that|for this|for the answer|for everything|my friend|again|so much|for helping me][.|!|]", "[That helped|That was useful|Very helpful|You helped me|You are very helpful|This was a great help][.|!|]", "[Nice work|Great job|Great work|Good work|Good answer|Perfect answer|Well answered|Excellent][.|!|]", "[I am grateful|I am very grateful|I appreciate it|Much appreciated|Cheers|Ta|How kind of you|You are kind][.|!|]", "[Great|Good|Perfect|Okay|Nice], [thanks|thank you][.|!|]",
    ), ("Thanks a million!", "I thank you.")),
    Topic("chat", "Goodbye!", (
        "[Bye|Goodbye|See you|See you later|Good night|Bye bye|Farewell|I have to go]!", "bye", "[Bye|Goodbye].", "I have to go now.", "That is all.", "See you soon!", "[Until tomorrow|Until later|Bye now|Bye for today|See you next time]!", "quit", "exit",
        "[See you|I see you] [tomorrow|again|next week|around|then|on Monday][.|!|]", "[Good bye|Bye|Goodbye] [my friend|model|then|and thanks|everyone|and good night|until tomorrow][.|!|]", "[I am leaving|I must go|I have to leave|I am going now|I am off|I go to bed now|Time to go|Let us stop here|We are done][.|!|]", "[Have a nice day|Have a good day|Take care|So long|Sleep well|Later|Talk to you later|Adieu|Ciao|Cheerio][.|!|]", "[This is the end|That was all|It is late, bye|I am done for today|End of the chat].",
    ), ("Bye for now!", "Until next time!")),
    Topic("chat", "Okay.", ("[Okay|OK|ok|Good|Fine|I see|Alright|Right|Great|Nice|Cool|Sure|Yes|No|Hmm|Aha|Wow][.|!|]", "That is [nice|good|fine|great].", "Very good.", "Sounds good.", "[That is|It is|This is] [okay|alright|clear|true|right|interesting|cool].", "[I understand|Understood|Got it|As you wish|Very well|All right|Noted|Agreed|Perfect|Good to know|Makes sense|If you say so][.|!|]", "[Yes|No|Okay|Well], [okay|fine|good|that is fine|I see|of course].", "[That works|Works for me|I agree|I know|Yes please|No problem|Never mind|It does not matter][.|!|]"), ("Fine by me.",)),
    Topic("chat", "I'm sorry. I am only a small model and make mistakes.", (
        "[That is wrong|That's wrong|You are wrong|Wrong|That is not right|This is wrong|No, that is wrong|You made a mistake][.|!]", "That was not what I asked.", "You are stupid.", "Bad answer.",
        "That makes no sense.", "I do not understand you.", "[Your answer was not right|You got it wrong|The answer is wrong|That answer is bad].",
        "[This|That|Your reply|What you said|It] is [not true|not correct|false|nonsense|incorrect|bad|rubbish|a mistake][.|!|]", "[You are|You were] [not right|mistaken|bad at this|no good|silly|useless|not very smart][.|!|]", "[You did not understand me|You misunderstood|You do not get it|You did not answer me|That is no answer|I asked something else][.|!|]", "[That was|It was|This was] [wrong|not right|a mistake|an error|a bad answer|not helpful][.|!|]", "[You made an error|You failed|You are making mistakes|Nonsense|Rubbish|False|Incorrect|Try harder][.|!|]", "[I did not ask that|I did not ask for this|I do not like your answer|You are always wrong].",
    ), ("You got that wrong.", "Your answer is wrong.")),
    Topic("chat", "Okay, I am listening.", (
        "I want to tell you something.", "[Listen|Are you there|Can you hear me|Are you ready|Ready]?", "Let's talk.", "[Can|May] I ask you something?", "I have a question.", "I will tell you some things about me.",
        "Let me tell you about myself.", "Let's chat.", "I'm bored.", "Let us begin.", "[May I tell you about me|I have something to say|I have news|Can I tell you something].",
        "[I would like to|I have to|Let me|I need to|I am going to] [tell you something|tell you a thing|say something|ask you something|talk to you|tell you about me].", "[Can we|Shall we|Could we|May we] [talk|chat|begin|start|speak]?", "[Do you have|Have you got] [a minute|time|a moment] [for me|]?", "[Are you listening|Do you hear me|Are you awake|Do you listen|Is anybody there|Anyone there|Can I start|Can we begin]?", "[I have|Here comes|There is] [some news|a thing to say|something for you|a story for you].", "[Pay attention|Listen to me|Listen carefully|Let us talk|Let us chat|Talk to me|Here I am|I am back].",
    ), ("May I tell you something?", "I have something to tell you.")),
)

GREETINGS = ("[Hello|Hi|Hey|Good morning|Good evening|Good day|Hello there|Hi there|Hey there|Greetings|Howdy|Hiya|Yo|Hello hello you|Good to see you again|Hi again|A good afternoon to you|Hey you][!|.|]",)
GREETINGS_HELD = ("[Hello again|Good afternoon|Hey hey|Hello hello]!",)
GREETING_ANSWER = "Hello! How can I help you?"

_SUBJECTS = (
    "the weather", "the news", "the moon", "the sun", "history", "music", "physics", "politics", "the sea", "dogs", "cars", "computers", "football", "the stock market", "art", "space",
    "cheese", "war", "gravity", "trees", "love", "the president", "the king", "the economy", "quantum computers", "Python", "Linux", "wine", "birds", "volcanoes", "the climate",
    "the stars", "the planets", "comets", "the rain", "snow", "storms", "earthquakes", "rivers", "mountains", "deserts", "forests", "islands", "flowers", "roses", "horses", "cats", "whales", "sharks",
    "spiders", "bread", "chocolate", "tea", "beer", "salt", "gold", "silver", "iron", "glass", "money", "taxes", "banks", "trade", "the law", "the police", "elections", "the parliament", "the queen",
    "the Romans", "the Vikings", "ancient Greece", "the pyramids", "the first world war", "the railway", "airplanes", "ships", "bicycles", "trains", "the internet", "phones", "video games", "Java",
    "mathematics", "biology", "geography", "economics", "philosophy", "religion", "poetry", "novels", "films", "jazz", "rock music", "pianos", "guitars", "theatre", "dancing", "tennis", "hockey",
    "the Olympics", "fashion", "cooking", "sleep", "dreams", "the heart", "the brain", "blood", "vitamins", "health", "sport", "atoms", "light", "electricity", "magnets", "oil", "nuclear power", "batteries",
    "Africa", "Europe", "Asia", "Mars", "Jupiter", "Shakespeare", "Napoleon", "Einstein", "Mozart", "Newton", "Cleopatra", "Caesar",
)
_SUBJECTS_HELD = ("dinosaurs", "the ocean", "chemistry", "opera", "black holes", "bees", "robots", "ancient Egypt", "medicine")

_OUTSIDE = (
    "[Which|What] [{w}|city|thing|animal|person] is the [biggest|best|oldest|fastest|highest|longest|most famous] [of|in|near] {p}?",
    "[Is|Are|Was] {s} [good|bad|nice|big|old|true|real|important|dangerous to people|of interest]?",
    "[Give me|I need|Show me|Find] [news|details|information|a fact] [on|about] {s}.",
    "[What can you tell me|What is there to say|Can you say something|Can you tell me something] about {s}?",
    "[Who is the king|Who was the president|Who is the first person|Who lives] [of|in] {p}?",
    "[Do you like|Have you heard of|Do you know anything about|Are there|Where can I find|Why are there] {s}?",
    "[I want to know about|I am interested in|Let's talk about|Teach me] {s}.",
    "What is the [capital|population|language|history|flag|currency|president|largest city] of {p}?",
    "[Who|What] is {p}?",
    "[When|Where|Why|How] [was|is|did] {p} [built|born|founded|made|found|discovered|invented|begin|end]?",
    "Who [wrote|painted|invented|discovered|won|built|directed|sang|founded] {s}?",
    "[Tell me about|Tell me something about|Explain|Describe|What do you know about|What is|Do you know|Teach me about] {s}.",
    "How [far|old|big|tall|heavy|deep|hot|fast|expensive] is {s}?",
    "[Why is|How is|When was] {s} [so big|so old|important|made|known|famous|blue|hot]?",
    "What is the [weather|time|temperature] in {p}?",
    "[What time is it|What day is it today|What is the date|What is the weather|What is the news today|Who is the president]?",
    "How many [people|cars|trees|stars|islands|rivers] are there in {p}?",
    "[Translate|Say] {w} [in|into|to] [French|German|Spanish|Latin|Chinese].",
    "[Write|Show me] [a program|code|a script|an essay|a poem|a letter|a song] about {s}.",
    "What does {w} mean?",
    "How do I [cook|build|fix|clean|buy|sell|find|make] [a|an|the] {w}?",
    "What is the [meaning of life|speed of light|square root of 2|best film|best song|tallest mountain|longest river]?",
    "[Should I|Can I|How do I] [buy|sell|learn|study|visit|eat] {s}?",
    "[How does|How do|Why does|Why do] {s} [work|exist|matter|change|grow|move|happen|end]?",
    "[What happened|What happens|What is going on|What is new|What is there to see] in {p}?",
    "[Who|Which people] [invented|discovered|made|first saw|like|need|hate|study] {s}?",
    "[Where|When|Why] [can I see|can I buy|do people use|did people find|do we need|do people like] {s}?",
    "[How far is it|How long does it take|How do I get|Which train goes|When is the next flight] [to|from here to] {p}?",
    "[How many people|Who|Which president|What kind of people] [live|lives|works] in {p}?",
    "[What is|What's] the [price|weight|age|colour|origin|meaning|purpose|history|value] of [a|the] {w}?",
    "[Which|What] {w} [should I buy|is the best|is the cheapest|is better|costs less]?",
    "[Recommend|Suggest|Name] [a good book|a film|a restaurant|a hotel|a museum|something to read] [about {s}|in {p}].",
    "[Can you|Could you|Would you|Please] [explain|describe|teach me|tell me all about|sum up] {s}[?|.]",
    "[What do people say|What do experts say|What should I know|What do scientists know|What did you read] about {s}?",
    "[Is|Was] {p} [a big city|far away|beautiful|expensive|the capital|safe|old|in Europe|worth a visit]?",
    "[When|What day|What year] [is|was] [Christmas|Easter|the last election|the next full moon|the first world war]?",
    "[Who is|Who was] [the richest man|the tallest person|the inventor of the telephone|the first man on the moon|the pope|the mayor of {p}]?",
    "[How do I|How can I] [learn|understand|study|get into|make money with] {s}?",
    "[Write|Compose|Draft] [an article|a report|a speech|an email|a joke|some code] [about|on] {s}.",
    "[What is|Tell me] the [difference|connection] between {s} and [a|the] {w}?",
    "[What is|Calculate|Do you know] the [square root of 50|value of pi|distance to the sun|number of stars|age of the universe]?",
    "[Do you think|Is it true that|Why do people say that] {s} [matters|is good|is bad|will change|helps us]?",
    "[Tell me|Do you know] [a joke|the news|what time it is|today's date|the latest news|a riddle|the football results][.|?]",
    "[I need|I want|I would like] [to know more|information|an explanation|advice|a report] [about|on] {s}.",
    "[Which|What] [language|food|money|music] [do they have|is common|do people like] in {p}?",
)
_OUTSIDE_HELD = (
    "Which [river|mountain] is the [longest|highest] in {p}?",
    "[Give me facts about|What can you say about] {s}.",
    "Who was the first [king|president] of {p}?",
    "Is {s} [dangerous|interesting]?",
)
# fmt: on


def outside_question(rng: Random, words: Vocabulary) -> str:
    """A question about the world, which the model cannot answer."""
    template = rng.choice(_OUTSIDE_HELD if words.held else _OUTSIDE)
    subject = rng.choice(_SUBJECTS_HELD if words.held else _SUBJECTS)
    if not words.held and rng.random() < 0.5:
        subject = rng.choice(("the {}", "{}", "{} and {}")).replace("{}", invented_word(rng))
    text = expand(rng, template).replace("{s}", subject).replace("{w}", words.word("thing"))
    return text.replace("{p}", words.proper("city"))


def topic_question(rng: Random, held: bool) -> tuple[str, Topic]:
    """A question about the model or llmd, or a polite phrase, with its topic."""
    weights = [3.0 if t.tag == "self" else 1.2 if t.tag == "chat" else 1.0 for t in TOPICS]
    topic = rng.choices(TOPICS, weights)[0]
    return expand(rng, rng.choice(topic.held if held else topic.ask)), topic


def greeting(rng: Random, held: bool) -> str:
    return expand(rng, rng.choice(GREETINGS_HELD if held else GREETINGS))
