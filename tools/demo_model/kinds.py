"""What a person can tell about themselves, how they say it, how they ask for it, and the one right answer.

Templates use `[a|b]` for alternatives, `{v}` for the value and `{n}` for the thing a fact is about. The `held` phrasings
are for the evaluation only. Answers are canonical: one text per question and state, so that they can be checked exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

FAV = "[favourite|favorite]"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fact; `mine` names it in the first person."""

    key: str
    category: str
    answer: str
    unknown: str
    mine: str
    tell: tuple[str, ...]
    tell_held: tuple[str, ...]
    ask: tuple[str, ...]
    ask_held: tuple[str, ...]
    nouns: tuple[str, ...] = ()
    nouns_held: tuple[str, ...] = ()
    weight: float = 1.0


_CALLED = "is [called|named]"

# fmt: off
KINDS: tuple[Kind, ...] = (
    Kind(
        key="name",
        category="name",
        answer="Your name is {v}.",
        unknown="Your name is something you haven't told me.",
        mine="my name",
        tell=(
            "[My name is|My name's|I am called|I'm called|People call me|Everyone calls me|Call me|I am|I'm|It's|This is]"
            " {v}.",
            "[You can call me|You may call me|Please call me|They call me|I go by|I am named] {v}.",
            "{v} is my name.",
            "The name is {v}.",
            "{v} here.",
            "[Let me introduce myself:|May I introduce myself? I am|I want to introduce myself, I am|To introduce myself: I am] {v}.",
            "[My family calls|My family and friends call|Friends call|Others call|Some call|Just say|You are free to call|You may just call] me {v}.",
            "[Please use|Use|Feel free to use] my name, {v}.",
            "[They just|Everybody just|You just|Most people|My colleagues|At work they|At home they] call me {v}.",
            "[Feel free to say|You are welcome to call me|I would like to be called|I like to be called|I am known as|I introduce me as] {v}.",
            "[Here I am introduced as|They introduce me as|He introduced me as] {v}.",
            "[You are talking to|You are speaking with|It's me,|This is your friend] {v}.",
            "My [first name|full name|real name] is {v}.",
            "[My name|Name][?|:] {v}.",
            "{v} is [what people call me|how I am called|who I am].",
            "The person talking to you is [called|named] {v}.",
        ),
        tell_held=("[My friends call me|Just call me|Feel free to call me] {v}.", "I introduce myself as {v}."),
        ask=(
            "[What is|What's|Whats|What was|Tell me] my name?",
            "Who am I?",
            "[And what is my name|And who am I|So what is my name|What should my name be|How should you call me|What should one call me|By what name should you call me|Which name have I got|Which name do I go by|My name, what is it]?",
            "[Tell me my name again|Once again, what is my name|Who am I again|Say it again, what is my name].",
            "[Who are you talking to|Who is talking to you|Who am I, do you know|Do you know who I am|Who did I say I am]?",
            "[Please say my name|Which name is mine|What name do I have|Give me my name|Name, please|My name please].",
            "[What am I called|How am I called|What do people call me|What do you call me|Which name did I give you]?",
            "[What name did I tell you|What did I say my name was|Say my name|My name]?",
        ),
        ask_held=("[What is my name again|What should you call me|And my name is]?", "Which name do I have?"),
        weight=7.0,
    ),
    Kind(
        key="live",
        category="city",
        answer="You live in {v}.",
        unknown="You live in a place you haven't told me.",
        mine="where I live",
        tell=(
            "I [live|am living|live now|currently live|have lived for years] in {v}.",
            "[I have been in|I have been living here in|I have lived|For a while I have lived in|Since last summer I live in] {v}.",
            "{v} is [my home|my city|the city I live in|where my home is|the place I live in].",
            "I [am based|work and live|live with my family|rent a room|stay] in {v}.",
            "[These days|Now|At present] I live in {v}.",
            "[My home is|My home is in|I have a flat in|I have a house in|My city is|My address is in|I moved to] {v}.",
        ),
        tell_held=("I have been living in {v} [for a while|since last year].", "{v} is where I live."),
        ask=(
            "Where do I live?",
            "[What|Which] [city|town|place] do I live in?",
            "[Where exactly is my home|In what city do I live|In which place do I live|What place do I live in|The place I live in, what is it|My city is]?",
            "[Where is my house|Where do I stay|Name the city I live in|Where is my flat|What is my city]?",
            "[Where is my home|Where did I say I live|In which city do I live|Where am I living]?",
        ),
        ask_held=("[Where exactly do I live|In what place do I live]?", "The city I live in is?"),
        weight=2.0,
    ),
    Kind(
        key="from",
        category="city",
        answer="You come from {v}.",
        unknown="You come from a place you haven't told me.",
        mine="where I come from",
        tell=("[Originally I am|I come originally|I am, originally,] from {v}.", "I was [raised near|raised and born in|a child in] {v}.", "[The place I come from is|I am from there:] {v}.", "I [come from|am from|am originally from|was born in|grew up in] {v}.", "My home town is {v}."),
        tell_held=("Originally I come from {v}.", "I was raised in {v}, [I come from there|that is where I am from]."),
        ask=("[Where do I come from originally|What place do I come from|Which city do I come from|From which place do I come|From where am I]?", "Where do I come from?", "Where am I from?", "[Where was I born|Where did I grow up|What is my home town]?"),
        ask_held=("From where do I come?", "[Which place do I come from|Where am I originally from]?"),
    ),
    Kind(
        key="age",
        category="age",
        answer="You are {v} years old.",
        unknown="You are of an age you haven't told me.",
        mine="my age",
        tell=("[I have been {v} years old for a while|Since last year I am {v} years old|Right now I am {v} years old|I am {v} years old at this moment].", "I am {v} years old.", "I'm {v} [years old|years of age].", "My age is {v}.", "I [just turned|turned] {v}."),
        tell_held=("I have been {v} years old since May.", "At the moment I am {v} years old."),
        ask=("[How old am I again|And how old am I|What age have I got|Which age did I tell you|How old am I right now|My age is]?", "How old am I?", "What is my age?", "[What age am I|How old did I say I am|How many years old am I]?"),
        ask_held=("My age, what is it?", "[How old am I now|What age did I tell you]?"),
        weight=1.5,
    ),
    Kind(
        key="job",
        category="job",
        answer="Your job is {v}.",
        unknown="Your job is something you haven't told me.",
        mine="my job",
        tell=("[I have worked as|I have been|For years I have been|My trade is that of|I am by trade|At work I am|By profession I am] a {v}.", "I work as a {v}.", "[I am|I'm] a {v}.", "My job is {v}.", "I am a {v} by profession.", "[I am employed as|I was trained as|My profession is] a {v}.", "I [earn my money|make my living] as a {v}."),
        tell_held=("I have been working as a {v} for years.", "By trade I am a {v}."),
        ask=("[What kind of work do I do|Which kind of job is mine|What is it that I work as|As what do I earn my money|What job do I have|Which job have I got|What is my work]?", "What is my job?", "What do I [do for a living|work as|do]?", "[What do I do for work|What is my profession]?"),
        ask_held=("[What kind of job do I have|As what do I work]?", "What is it that I do for work?"),
        weight=1.5,
    ),
    Kind(
        key="hobby",
        category="hobby",
        answer="Your hobby is {v}.",
        unknown="Your hobby is something you haven't told me.",
        mine="my hobby",
        tell=("[I do {v} as a hobby|My weekend hobby is {v}|I have a hobby: {v}|On free days I do {v}|On Sunday my hobby is {v}].", "[I am into|I am a fan of|What I like to do is|What I enjoy most is] {v}.", "My hobby is {v}.", "My main hobby is {v}.", "In my free time I [like|enjoy|love] {v}.", "I spend my [free time|weekends] with {v}."),
        tell_held=("As a hobby, I do {v}.", "On weekends my hobby is {v}."),
        ask=("[What hobby do I have|Which hobby did I tell you|What is it I like to do|What did I mention as my hobby|How do I spend my weekends|What do I do as a hobby]?", "What is my hobby?", "What do I [like to do|do] in my free time?", "[Which hobby do I have|What do I enjoy]?"),
        ask_held=("[What hobby did I mention|What is it I do as a hobby]?", "How do I spend my free time?"),
    ),
    Kind(
        key="favourite",
        category="thing",
        answer="Your favourite {n} is {v}.",
        unknown="Your favourite {n} is something you haven't told me.",
        mine=f"my {FAV} {{n}}",
        tell=(
            f"My {FAV} {{n}} is {{v}}.",
            f"{{v}} is my {FAV} {{n}}.",
            "The {n} I [like most|like best|love most|prefer] is {v}.",
            f"My {FAV} {{n}} [has always been|will always be|must be] {{v}}.",
            f"I have a {FAV} {{n}}: {{v}}.",
            f"[I say|I would call it|I think|I guess] my {FAV} {{n}} is {{v}}.",
            f"[As a {{n}}, my {FAV} is|When you ask about a {{n}}, my {FAV} is|Speaking of a {{n}}, I like most] {{v}}.",
            "[Of all of them|Among all|Of every {n}], the {n} I [love|prefer|like] is {v}.",
            "[For me|To me|In my opinion] the best {n} is {v}.",
            f"I [really like|like|love|adore] {{v}}, it is my {FAV} {{n}}.",
            f"{FAV} {{n}}: {{v}}.",
            "{v} is the {n} I [like most|like best|love most|prefer].",
            f"If you ask me for my {FAV} {{n}}, it is {{v}}.",
        ),
        tell_held=(
            f"When it comes to a {{n}}, my {FAV} is {{v}}.",
            f"I would say my {FAV} {{n}} is {{v}}.",
            "Of all, the {n} I like most is {v}.",
        ),
        ask=(
            f"[What is|What's|Whats|What was|Tell me] my {FAV} {{n}}?",
            "[What|Which] {n} do I [like most|like best|love most|prefer]?",
            f"[So which {{n}} is my {FAV}|And what is my {FAV} {{n}}|What was my {FAV} {{n}} again|What is the {{n}} that I like most|What {{n}} is my {FAV}|The {{n}} that is my {FAV}, what is it]?",
            "[What|Which] {n} is the best [for me|to me|in my opinion]?",
            f"[Name|Give me|Say|Please tell me] my {FAV} {{n}}.",
            f"[Which {{n}} is my {FAV}|What did I say my {FAV} {{n}} was|My {FAV} {{n}}]?",
        ),
        ask_held=(f"[What is my {FAV} {{n}} again|So what is my {FAV} {{n}}]?", f"Which is the {{n}} that is my {FAV}?"),
        nouns=("colour", "colour", "animal", "food", "drink", "number", "city", "month", "day", "word", "meal", "sport",
               "place", "dish", "toy", "song", "book", "film", "game", "band", "song", "fruit", "shop", "letter"),
        nouns_held=("colour", "animal", "food", "drink", "number", "movie", "team"),
        weight=6.0,
    ),
    Kind(
        key="called",
        category="name",
        answer="Your {n} is called {v}.",
        unknown="Your {n} is called something you haven't told me.",
        mine="what my {n} is called",
        tell=(
            f"My {{n}} {_CALLED} {{v}}.",
            "The name of my {n} is {v}.",
            "I [have a|have got a|own a|got a] {n} [called|named] {v}.",
            "{v} is [my {n}|the name of my {n}].",
            "My {n}'s name is {v}.",
            "I have a {n}, {v}.",
            "I call my {n} {v}.",
            "[There is a {n} in my life, named|I live with a {n} named|At home I have a {n} called|There is my {n}, called|The name I chose for my {n} is] {v}.",
            "[We call our {n}|We named our {n}|They named my {n}|I gave my {n} the name] {v}.",
            "[This is my {n}|Meet my {n}|Say hello to my {n}|My {n} is here], {v}.",
        ),
        tell_held=("I named my {n} {v}.", "There is a {n} at home, called {v}."),
        ask=(
            "What is my {n} [called|named]?",
            "What is the name of my {n}?",
            "[Which name does my {n} have|What name has my {n}|And what is my {n} called|How did I call my {n}|My {n} is named]?",
            "[Tell me|Say|Please tell me|Give me] the name of my {n}.",
            "[Which name|What name] did I [give my {n}|give to my {n}|choose for my {n}]?",
            "[Do I have a {n}, and what is it called|What did I say my {n} is called]?",
            "[What is|What's] my {n}'s name?",
            "[What do I call my {n}|How is my {n} called|Who is my {n}]?",
        ),
        ask_held=("What name does my {n} have?", "[How did I name my {n}|And my {n} is called]?"),
        nouns=("dog", "cat", "horse", "parrot", "rabbit", "goat", "cow", "sister", "brother", "mother", "father", "wife",
               "husband", "friend", "boss", "neighbour", "teacher", "daughter", "son", "uncle", "aunt", "boat", "robot",
               "car", "computer", "ship", "doll", "bike", "baby", "cousin", "doctor", "mouse", "fish", "duck"),
        nouns_held=("hamster", "turtle", "dog", "cat", "sister", "colleague", "friend", "guitar"),
        weight=4.0,
    ),
    Kind(
        key="mine",
        category="code",
        answer="Your {n} is {v}.",
        unknown="Your {n} is something you haven't told me.",
        mine="my {n}",
        tell=(
            "My {n} is {v}.",
            "[The {n} I have|The {n} I use|The {n} I got] is {v}.",
            "{v} is my {n}.",
            "[Remember my {n}|Note my {n}|Save my {n}|My {n}|Here is my {n}|My {n} is this]: {v}.",
            "[I have|I got|I chose] {v} as my {n}.",
            "[As to my {n}, it is|My {n}, it is|About my {n}: it is] {v}.",
            "[Keep my {n} in mind|You should know my {n}|Mind my {n}]: {v}.",
            "[They gave me|I was given|I picked|I use] {v} as my {n}.",
            "My {n} [will be|must be|happens to be|is now] {v}.",
            "{v}, that is my {n}.",
        ),
        tell_held=("As for my {n}, it is {v}.", "[Keep in mind that|You should know that] my {n} is {v}."),
        ask=(
            "[What is|What's|Whats|What was|Tell me] my {n}?",
            "[Which {n} do I have|What did I say my {n} was|My {n}]?",
            "What {n} [do I have|do I use]?",
            "[Which {n} is my own|Which is my {n}|What was my {n} again|And what is my {n}|So which {n} is it|Whats my {n} again]?",
            "[Name|Give me|Say|Please tell me|I need] my {n}.",
        ),
        ask_held=("[What is my {n} again|So what is my {n}]?", "Which {n} is mine?"),
        nouns=("code word", "password", "lucky number", "room number", "project", "team", "street", "company", "school",
               "code", "order", "ticket number", "seat", "key word", "user name", "bus", "gate", "secret word", "title",
               "nickname", "group", "club", "phone number", "house number", "table number", "plan", "goal", "topic"),
        nouns_held=("lucky number", "code word", "booking code", "locker number", "secret word", "call sign"),
        weight=4.0,
    ),
    Kind(
        key="where",
        category="spot",
        answer="Your {n} {is} {v}.",
        unknown="Your {n} {is} somewhere you haven't told me.",
        mine="where my {n} {is}",
        tell=(
            "I [put|left|hid|placed|keep] my {n} {v}.",
            "My {n} {is} {v}.",
            "[You find my {n}|One finds my {n}|I just put my {n}|I have my {n}|Look for my {n}] {v}.",
            "The place for my {n} is {v}.",
        ),
        tell_held=("You will find my {n} {v}.", "I have just put my {n} {v}."),
        ask=("[In what place {is} my {n}|At which place {is} my {n}|Where can I look for my {n}|Where should I find my {n}|And where {is} my {n}]?", "Where {is} my {n}?", "Where did I [put|leave|hide] my {n}?", "Where do I find my {n}?"),
        ask_held=("[In which place|At what place] {is} my {n}?", "Where should I look for my {n}?"),
        nouns=("keys", "phone", "glasses", "wallet", "hat", "book", "shoes", "money", "gloves", "ring", "letter", "coat",
               "map", "lamp", "tickets", "laptop", "bag", "cup", "letters", "boots", "books"),
        nouns_held=("keys", "phone", "passport", "headphone", "wallet"),
        weight=1.5,
    ),
    Kind(
        key="when",
        category="moment",
        answer="Your {n} is {v}.",
        unknown="Your {n} is some time you haven't told me.",
        mine="when my {n} is",
        tell=("[I planned my {n}|They planned my {n}|We moved my {n}, now it is|My {n} was moved, it is] {v}.", "My {n} is {v}.", "I have [a|my] {n} {v}.", "My {n} [starts|takes place|will be] {v}."),
        tell_held=("They moved my {n}, it is {v}.", "I have planned my {n} {v}."),
        ask=("[When exactly does my {n} start|At which time is my {n}|What time exactly is my {n}|When did I plan my {n}|For what time is my {n}]?", "When is my {n}?", "When [does my {n} start|do I have my {n}|did I say my {n} is]?", "What time is my {n}?"),
        ask_held=("[At what time is my {n}|When exactly is my {n}]?", "For when is my {n} planned?"),
        nouns=("meeting", "party", "train", "lunch", "dinner", "class", "game", "call", "birthday", "test", "holiday",
               "trip", "dance", "lesson", "show", "exam", "visit", "bus"),
        nouns_held=("meeting", "birthday", "concert", "flight", "interview"),
        weight=1.5,
    ),
    Kind(
        key="memo",
        category="code",
        answer="The {n} is {v}.",
        unknown="The {n} is something you haven't told me.",
        mine="the {n}",
        tell=(
            "[Remember|Please remember|Keep|Note|Store|Memorize|Save] the {n} {v}.",
            "[Remember this {n}|The {n} to remember is|Here is a {n} to remember|Note this {n}|The {n} is]: {v}.",
            "The {n} is {v}.",
            "[Never forget the {n}|Keep the {n} in mind|Learn this {n}|Do not lose the {n}]: {v}.",
            "[Your {n} to remember is|The {n} for today is|Write down the {n}|I tell you the {n}]: {v}.",
        ),
        tell_held=("[Do not forget the {n}|Keep this {n} in mind]: {v}.", "Learn the {n} {v} by heart."),
        ask=(
            "[What is|What's|What was|Tell me] the {n}?",
            "[Repeat the {n}|Say the {n} again|Give me the {n}|And the {n} was|Which was the {n}|What is the {n} again].",
            "Which {n} [did I tell you|did I ask you to remember|should you remember]?",
            "What {n} did I [give you|tell you]?",
        ),
        ask_held=("[What was the {n} again|Which {n} was it]?", "Repeat the {n} I gave you."),
        nouns=("word", "number", "code", "secret", "letter", "date", "answer", "key", "price", "total", "rule"),
        nouns_held=("word", "number", "code", "magic word", "pin"),
        weight=2.0,
    ),
)
# fmt: on
