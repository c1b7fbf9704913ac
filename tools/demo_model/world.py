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
    ), ("What should I call you?", "Please introduce yourself to me.", "And who are you?", "What sort of model are you?")),
    Topic("self", "I can remember what you tell me in this session, do small sums, count, spell, make lists and call tools.", (
        "What can you do?", "[How can you help me|What can you help with|What are you good at|What do you do]?", "Help.", "What are you for?",
        "[Which|What] skills do you have?", "What can I ask you?", "[Can you|Could you] help me?", "What should I ask you?", "Show me what you can do.", "[What are you able to do|Which things can you do|What skills have you got|Tell me your skills|List your skills|What else can you do]?",
    ), ("What are your skills?", "What things can you do?")),
    Topic("self", "I was trained from scratch by the code in tools/demo_model. I have a few million parameters.", (
        "Who made you?", "How were you [made|trained|built|created]?", "Who [trained|built|created] you?", "How [big|large|small] are you?",
        "How many parameters do you have?", "Where do you come from?", "What data were you trained on?", "[Who was it that trained you|Was it hard to train you|How exactly were you made]?",
    ), ("Who was it that made you?", "How were you trained, exactly?")),
    Topic("llmd", "llmd is a daemon that loads a model once and serves many sessions from it, each with its own memory.", (
        "What is llmd?", "[Explain|Describe] llmd.", "What does llmd do?", "Tell me about llmd.", "What is this program?", "What is this [daemon|server|software]?",
        "[Why should I use|What can I do with|What is the point of] llmd?", "How does llmd work?", "What is llmd for?",
    ), ("Tell me what llmd is.", "What exactly is llmd?")),
    Topic("llmd", "A session is one conversation with its own memory. It is named by a session_id, and sessions never see each other.", (
        "What is a session?", "[Explain|Describe] sessions.", "What are sessions?", "How do sessions work?", "[What does|What is] session_id [mean|do]?",
        "What is a session in llmd?", "Tell me about sessions.", "How do I [start|name|create|open] a session?", "What is a session id?",
        "[Can|Do] sessions see each other?", "How do I keep two conversations apart?", "[Can I have|Are there] two sessions?",
    ), ("What do you mean by a session?", "Please explain what a session is.")),
    Topic("llmd", "A reset clears the memory of a session and keeps its place: POST /v1/sessions/{id}/reset.", (
        "What is a reset?", "How do I reset [a|this|the|my] session?", "What does reset do?", "How can I [clear|erase|wipe] [a|this] session?",
        "[What happens|What is lost] after a reset?", "Explain reset.", "How do I make you forget [everything|me|all]?", "Reset the session.", "How do I start over?",
        "[Forget everything|Forget me|Forget all].", "How does reset work?", "What is the difference between reset and close?",
    ), ("What happens when I reset a session?", "How does one reset a session?")),
    Topic("llmd", "Capacity is the number of sessions that fit. When it is full, the least recently used idle session is parked.", (
        "What is capacity?", "How many sessions [are there|can you hold|fit|can I have|are possible]?", "What happens when [capacity is full|there is no room|memory is full]?",
        "Explain capacity.", "What does capacity_exhausted mean?", "Is there a limit on sessions?", "What if there are too many sessions?", "Why did I get 429?",
    ), ("What does capacity mean in llmd?", "How many sessions can there be?")),
    Topic("llmd", "A parked session was moved out of the model's memory. It comes back warm when you use it.", (
        "What is a parked session?", "What does [park|parked|parking] mean?", "Where do idle sessions go?", "Explain parking.", "How do I park a session?", "What is parking?",
    ), ("What does it mean that a session is parked?", "Why is my session parked?")),
    Topic("llmd", "With warm resume, only the new part of a conversation is processed. What is already in memory is reused.", (
        "What is warm resume?", "[Explain|Describe] warm resume.", "What does [warm|warm resume] mean?", "How does warm resume work?", "Why is the second turn [fast|faster|so fast]?",
        "What is prefix reuse?", "What are cached tokens?", "Why is it so fast?", "What does it mean to resume warm?",
    ), ("What is meant by warm resume?", "Please explain warm resume to me.")),
    Topic("llmd", "A checkpoint is a saved state after a number of tokens, so that a session can go back without starting again.", (
        "What is a checkpoint?", "[Explain|Describe] checkpoints.", "What are checkpoints?", "How do checkpoints work?", "Why are there checkpoints?", "What does a checkpoint do?",
        "What are checkpoints for?", "When are checkpoints used?",
    ), ("What is a checkpoint good for?", "Tell me what checkpoints are.")),
    Topic("llmd", "A snapshot is a whole session as bytes. It lets a session survive a restart.", (
        "What is a snapshot?", "[Explain|Describe] snapshots.", "What are snapshots?", "Do sessions survive a restart?", "What happens after a restart?", "How do I save a session?",
        "What is a snapshot for?", "What happens when llmd stops?",
    ), ("What is a snapshot good for?", "Will my session survive a restart?")),
    Topic("llmd", "A fork is a new session that starts as a copy of another one.", (
        "What is a fork?", "[Explain|Describe] forks.", "How do I [copy|fork|duplicate] a session?", "What does fork do?", "Can I copy a session?", "What are forks?", "What is forking?",
    ), ("What is a fork good for?", "What does it mean to fork a session?")),
    Topic("llmd", "llmctl is the command line tool of llmd. It shows, resets and closes sessions.", (
        "What is llmctl?", "[Explain|Describe] llmctl.", "How do I use llmctl?", "What does llmctl do?", "Is there a command line tool?", "How do I [list|see|show] the sessions?",
        "Which sessions are there?", "How do I close a session?", "What command shows the sessions?", "How do I control llmd?",
    ), ("What is llmctl good for?", "Tell me what llmctl does.")),
    Topic("llmd", "Start with README.md. ARCHITECTURE.md explains how llmd works inside.", (
        "Where [are the docs|is the documentation|is the manual]?", "What should I read?", "Where can I [read|learn] more?", "Is there [documentation|a manual|a guide]?",
        "Where do I find the docs?", "Which file should I read first?", "How do I learn more about llmd?", "Show me the docs.", "What is in README.md?", "What is in ARCHITECTURE.md?",
    ), ("In which file are the docs?", "Where can I find documentation about llmd?")),
    Topic("llmd", "Start llmd with --model and the path of a GGUF file.", (
        "How do I load a [real|better|bigger|different|larger] model?", "How do I use [another|my own|a real|a better|a bigger] model?", "How do I change the model?",
        "Which models can llmd load?", "What is --model?", "What does --model do?", "How do I start llmd with a model?", "Can I use another model?", "What is a GGUF file?", "Can you load a better model?",
    ), ("How can I load my own model?", "How do I switch to a real model?")),
    Topic("llmd", "Send a POST to /v1/chat/completions with your messages and a session_id.", (
        "How do I send a message?", "What is the endpoint?", "Which endpoint do I use?", "How do I use the API?", "How do I call llmd over HTTP?", "What is the API?",
        "How do I chat over HTTP?", "What URL do I use?", "Is there an API?", "Is llmd compatible with OpenAI?",
    ), ("Which URL does the API have?", "How can I call the API?")),
    Topic("llmd", "Yes, but only within this session. After a reset I know nothing of it.", (
        "[Do|Can|Will] you remember [me|things|what I say|what I tell you|this]?", "Do you have a memory?", "How good is your memory?", "Can you remember things?", "Will you remember this tomorrow?",
    ), ("Are you able to remember things?", "Do you have any memory?")),
    Topic("chat", "I am fine, thank you. How can I help you?", (
        "How are you [||today|doing]?", "How do you [feel|do]?", "How is it going?", "Are you okay?", "How's it going?", "What's up?", "How are things?", "[Are you fine|Are you feeling well|Are you doing well|How are you feeling this evening|How are you doing]?",
    ), ("How are you doing this morning?", "Are you well?")),
    Topic("chat", "You're welcome!", (
        "[Thanks|Thank you|Thanks a lot|Many thanks|Thank you very much|Thx|Great, thanks|Thanks for your help]!", "[Thank you|Thanks].", "thanks", "That was helpful.", "Well done!",
        "Good job!", "Thanks, that helps.", "thank you so much", "[I want to thank you|I thank you very much|Thank you, model|A million thanks]!",
    ), ("Thanks a million!", "I thank you.")),
    Topic("chat", "Goodbye!", (
        "[Bye|Goodbye|See you|See you later|Good night|Bye bye|Farewell|I have to go]!", "bye", "[Bye|Goodbye].", "I have to go now.", "That is all.", "See you soon!", "[Until tomorrow|Until later|Bye now|Bye for today|See you next time]!", "quit", "exit",
    ), ("Bye for now!", "Until next time!")),
    Topic("chat", "Okay.", ("[Okay|OK|ok|Good|Fine|I see|Alright|Right|Great|Nice|Cool|Sure|Yes|No|Hmm|Aha|Wow][.|!|]", "That is [nice|good|fine|great].", "Very good.", "Sounds good."), ("Fine by me.",)),
    Topic("chat", "I'm sorry. I am only a small model and make mistakes.", (
        "[That is wrong|That's wrong|You are wrong|Wrong|That is not right|This is wrong|No, that is wrong|You made a mistake][.|!]", "That was not what I asked.", "You are stupid.", "Bad answer.",
        "That makes no sense.", "I do not understand you.", "[Your answer was not right|You got it wrong|The answer is wrong|That answer is bad].",
    ), ("You got that wrong.", "Your answer is wrong.")),
    Topic("chat", "Okay, I am listening.", (
        "I want to tell you something.", "[Listen|Are you there|Can you hear me|Are you ready|Ready]?", "Let's talk.", "[Can|May] I ask you something?", "I have a question.", "I will tell you some things about me.",
        "Let me tell you about myself.", "Let's chat.", "I'm bored.", "Let us begin.", "[May I tell you about me|I have something to say|I have news|Can I tell you something].",
    ), ("May I tell you something?", "I have something to tell you.")),
)

GREETINGS = ("[Hello|Hi|Hey|Good morning|Good evening|Good day|Hello there|Hi there|Hey there|Greetings|Howdy|Hiya|Yo|Hello hello you|Good to see you again|Hi again|A good afternoon to you|Hey you][!|.|]",)
GREETINGS_HELD = ("[Hello again|Good afternoon|Hey hey|Hello hello]!",)
GREETING_ANSWER = "Hello! How can I help you?"

_SUBJECTS = (
    "the weather", "the news", "the moon", "the sun", "history", "music", "physics", "politics", "the sea", "dogs", "cars", "computers", "football", "the stock market", "art", "space",
    "cheese", "war", "gravity", "trees", "love", "the president", "the king", "the economy", "quantum computers", "Python", "Linux", "wine", "birds", "volcanoes", "the climate",
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
