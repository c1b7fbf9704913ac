"""Requests for the skills in training. Phrasings that only the evaluation uses are next to each skill."""

from __future__ import annotations

# fmt: off
SUM = (
    "[Work out|Do|Solve|Find|How much would be|What makes] {s}.", "[What is|What's|Calculate|Compute|How much is|What does|Tell me] {s}?", "{s}", "{s} =", "{s}?", "[Please|Can you] [calculate|add up|compute] {s}.",
    "[Give me|Tell me|Say|Show me|Write] the [result|answer|value|solution] [of|for] {s}.", "[What do you get for|What do I get for|What comes out of|What is the result of|What is the answer to|Do you know|Can you tell me] {s}?",
    "{s}[, what is it?|, how much is that?|, please.| is what?| equals what?| makes?| gives what?|, can you do it?| is how much?]", "[I need|I want|I want to know|I would like to know|Let me know] {s}.",
    "[A sum|Math|Maths|Quick sum|A little sum|Next sum|Homework|Calculate this|Solve this|A sum for you]: {s}", "[If I|When I] [take|have|compute] {s}, [what is it|how much is it|what do I get]?", "{s} = ?",
    "[Could you|Would you|Will you|Please] [solve|do|find|tell me|figure out] {s}[.|?|]", "How much [makes|gives|do I get for|would be] {s}?", "what is {s}", "[And|And what is|Now|Then|Next] {s}?",
)
COUNT = {
    "up": (
        "[Count|Count up|Please count|Can you count] to {h}[.|!|]", "Count from 1 to {h}.", "[Start counting|Count now|I want you to count] up to {h}.",
        "[Say|List|Write|Give me|Tell me] [the|all|all the] numbers up to {h}.", "[Let us|Let's|Could you|Would you|Please] count to {h}.", "To {h}, [count|please count].", "[Count|Go|Start] from one to {h}.", "Do you know how to count to {h}?",
    ),
    "between": (
        "[Count|Please count] from {l} to {h}.", "[Numbers|Give me the numbers] from {l} to {h}.", "[Start with|Begin at|Start from] {l} and [go|count] up to {h}.",
        "[I want|I need|Say|Write|List|Tell me] the numbers {l} to {h}.", "From {l} to {h}, [count|please count].", "[Could you|Can you|Would you] count [from|up from] {l} to {h}?", "Count {l} to {h}.", "[From|Beginning with] {l}, count up to {h}.",
    ),
    "down": (
        "[Count down|Count backwards|Count back] from {h}.", "[Start|Make|Give me] a countdown [of|at] {h}.", "[Count down|Count backwards] from {h} to 1.",
        "From {h}, count [down|backwards|back].", "[Say|List|Write] the numbers from {h} [down|back] to 1.", "[I want|I need] a countdown that starts at {h}.", "[Could you|Can you|Please] count [down|backwards] from {h}.", "[Begin|Start] with {h} and count [down|backwards].",
    ),
}
SPELL = (
    "[Spell|Please spell|Can you spell|Spell the word|Spell the name] {w}.", "How do you [spell|write] {w}?", "[Spell out|Give me the letters of] {w}.", "What are the letters in {w}?",
    "[Can you|Could you|Would you|Please] spell [the word|the name|] {w}?", "[Spell this letter by letter|Letter by letter, spell|Give each letter of]: {w}",
    "How is [the word|the name|] {w} [spelled|spelt|written]?", "How [would you|should I|does one|can I|must I|do I|do people] [spell|write] {w}?",
    "[Spell|Write|Say|Give me|Show me|Type] {w} [one letter at a time|as single letters|with a dash between the letters|letter after letter|in letters].", "[Which|What] letters [are in|make up|are there in|does one need for] {w}?",
    "[Tell me|Show me|I need|I want|Give me] the [spelling|letters] of {w}.", "[What is|Do you know] the spelling of [the word|the name|] {w}?", "[Write|Say|Read|Type] [the word|] {w} letter by letter.",
    "{w}[, spell it.|: spell it, please.|, how is it spelled?|, letter after letter.| - how do you spell that?|, spelled out, please.|, please spell this.]",
    "[Spell it|Spell|Spell this|Spell this word|Spell this name|Spell for me|Spelling|Spell out|A word to spell]: {w}", '[Spell|Please spell|Can you spell|Spell the word|How do you spell] "{w}"[.|?|]',
    "[I want you to|You should|Now|Try to|I would like you to|Just] spell [the word|] {w}.", "[Would you mind spelling|Are you able to spell|Do you know how to spell|Will you spell] {w}?",
    "[Break|Split|Cut|Take] {w} [into|apart into] [letters|its letters|single letters].", "[I need to|I have to|I want to] spell {w}[.|, how?|, please help.]", "[Letter by letter|In single letters|With dashes]: {w}", "spell {w}",
)
REPEAT = (
    "[Repeat after me|Repeat|Say|Please repeat|Echo|Say this|Repeat this|Write this|Copy this]: {w}", "[Say|Repeat|Echo|Write] {w}", '[Say|Repeat|Write] "{w}"',
    "[Please repeat this|Repeat the words|Say these words|I want you to say|Now say|Say the following|Please echo what I say]: {w}",
    "[Say|Echo|Write|Copy|Type|Print|Quote|Return] [this|exactly this|only this|the following|these words|this text|this line|back to me|again|once|word for word]: {w}",
    "[Repeat|Please repeat|Now repeat] [this line|exactly this|these words|this text|word for word|what I say|back to me|it after me]: {w}",
    "[Can you|Could you|Would you|Will you|Please|Kindly|I want you to|You should|Just|Try to] [say|repeat|echo|write|copy|type] [this|these words|that text|what follows]: {w}",
    "[Can you|Could you|Would you|Will you] [say|repeat|echo|write|type] {w}?", '[Can you|Could you|Please|Will you|I want you to|Now] [say|repeat|echo|write|type] "{w}"[.|?|, please.]',
    '"{w}"[ - repeat that.|, say that.|: say it again.|, please repeat.|, repeat it after me.|. Now say it.]', '[Say|Repeat|Echo|Write] "{w}" [once|again|back to me|please|for me|after me].',
    "[The words are|The text to repeat is|Words to repeat|Repeat what I say|After me|Echo|Your line|Say what I say|Speak after me|Write after me]: {w}", "{w}[ - repeat that.|: repeat this.|: say it again.| - say these words.]",
    "[Answer|Reply|Respond] with [exactly|only|just|nothing but] [this|these words|this text]: {w}", "[Please|Now|Kindly|Just] [say|write|echo|repeat|copy|type] {w}", "[I say|I say this, you repeat it|Say after me these words|My line, please repeat]: {w}",
)
REPEAT_TIMES = (
    "[Say|Repeat|Write|Can you repeat|Could you say|Please say|Echo|Type|Print|Please write|Will you write|Now say] {w} {n} times[.|]", '[Say|Repeat|Write|Type|Could you repeat] "{w}" {n} times.', "{n} times, [say|write|repeat|echo]: {w}",
    "[I want to hear|I want to read|Give me|Let me hear|Show me] {w} {n} times.", "[Say|Repeat|Write|Echo|Type] [this|the following|these words] {n} times: {w}", "[Would you|Could you|Will you] [repeat|write|echo] {w} {n} times?", "{w}, {n} times please.",
)
LIST_ITEMS = (
    "[Make|Write|Give me|Create] a list [of|with|from]: {w}", "[List these|Put these in a list|Turn this into a list]: {w}", "Make a list with {w}.",
    "[Build|Show|Produce|Return|Please write|Please make|I want|I would like] [a|one] list [of|with|from|out of][:|] {w}", "[List|Itemize|Write down|Please list] [the following|these things|this|these words|them]: {w}",
    "[Put|Write|Bring|Place|Sort] [these|this|the following|these words] [in|into] a [list|bullet list]: {w}", "[Bullet points|A list|List|As bullet points|Bullet list|Make this a list|One per line|Format as a list|Show as a list]: {w}",
    "{w}[, as a list.|: make a list.|, please list these.| - turn that into a list.|, put them in a list.|, in a list, please.]", "[Can you|Could you|Would you|Will you] [make|write|give me|create] [a list|bullet points] [of|with|from] {w}?",
    "My list [has|is|contains]: {w}. Write it [down|out].", "[Shopping list|Packing list|To do list|A list of things]: {w}",
)
LIST_OF = (
    "[List|Name|Give me|Tell me|Write down|Show me] {k} {c}.", "[Give me|Make|Write] a list of {k} {c}.", "[I need|Can you give me|Can you list|Could you name|I want] {k} {c}.",
    "[Think of|Write|Find|Say|Mention|Note|Please list|Please name|Please give me] {k} {c}.", "[Could you|Would you|Will you|Can you] [list|give me|tell me|write|show me|think of] {k} {c}?", "[What are|Which are|Do you know|Would you name] {k} {c}?",
    "{k} {c}[, please.|.|, as a list.| in a list.| for me.|]", "[I am looking for|I would like|I want to see|I want to hear|Let me have|Let me see] {k} {c}.", "[I want|Create|Produce|Show me|Please write|Could you write] a list [of|with] {k} {c}.",
    "[Which|What] {c} do you know? [Name|Give me|List] {k}.", "[Examples of|A list of] {c}: {k}[, please.|.|]", "[Tell me|Give me] the names of {k} {c}.",
)
JSON_KEYS = (
    "[Write|Give me|Make|Create|Return|Output] [a|one] JSON object with the [key|keys|fields] {w}.", "JSON object with [keys|fields] {w}", "[Give me|Make] JSON with the keys {w}.", "[I want|I need|Answer with] JSON [with|that has] the [keys|fields] {w}.",
    "[I want|I would like|Please give me|Please write|Can you write|Could you make|Show me|Build|Produce|Print] [a|one|an empty] JSON object with [the keys|the fields|keys|fields|the properties] {w}.",
    "[Write|Make|Create|Show me|Return|Output|Please make|Could you write] JSON [with|containing|using] [the keys|the fields|the properties|keys] {w}.", "[Keys|Fields|The keys are|The fields are]: {w}. [Make JSON.|Write a JSON object.|Give me the JSON.|Write the JSON.]",
    "[A|One|An empty] JSON object [with|that has|containing] [the keys|the fields|keys|fields] {w}[.|, please.|]", "[Reply|Respond] with [JSON|a JSON object] [that has|with] the [keys|fields] {w}.", "{w}: make [a JSON object|JSON] with these [keys|fields].",
    "[Make|Write|Create|Build] a JSON object that [has|contains|holds] [the keys|the fields|keys] {w}.", "[As JSON keys|JSON keys|JSON fields|Empty JSON with]: {w}", "[Can I have|May I have|Could I get] a JSON object with [keys|the keys] {w}?", "[Use|Take] {w} as the [keys|fields] of a JSON object.",
)
JSON_PAIRS = (
    "[Write|Give me|Make|Create|Return|Output] [a|one] JSON object with {w}.", "[Turn this into|Convert to|As] JSON: {w}", "[Make|Write] JSON from {w}.", "[I want|I need|Format this as] JSON [with|of|:] {w}.",
    "[I want|I would like|Please give me|Please write|Can you write|Could you make|Show me|Build|Produce|Print] [a|one] JSON object [with|of|from|for|where] {w}.", "[Write|Put|Show|Print|Give] [this|these|the following] [as|in] JSON: {w}",
    "[Convert|Translate|Change|Bring] [this|these|the following] [to|into] [JSON|a JSON object]: {w}", "{w}[, as JSON.|: make JSON.| - turn that into JSON.|, in JSON please.|. Write it as JSON.]", "[JSON|To JSON|JSON please|In JSON|JSON from|JSON of|Make JSON|Into JSON]: {w}",
    "[Can you|Could you|Would you|Will you] [make|write|give me|create|build] [JSON|a JSON object] [with|from|of] {w}?", "[A|One] JSON object [with|where|that has|from] {w}[.|, please.]", "[Reply|Respond|Answer] [with|in] JSON: {w}",
    "[Make|Create|Write|Return] a JSON object that [says|has|contains|holds] {w}.", "[Use|Take] {w} [to make|for|and make] a JSON object.", "[Encode|Store|Save|Express] {w} [as|in] JSON.",
)
STORY = (
    "[Tell me|Tell|Write|Write me|Can you tell me] a [|short|little|two-sentence] story about [a|the] {w}.", "[A story|A short story] about a {w}, please.",
    "[I want|I need|Give me|Invent|Make up|Create|Please write|Could you tell me|Would you write|Think of|Let me hear|Read me] [a|one] [short|little|nice|tiny|new|] [story|tale] [about|with] a {w}.",
    "[The story|A tale|A little tale|The tale] of [a|the] {w}[.|, please.|]", "[Please tell|Can you write|Could you write|Will you tell me|Would you tell me] a story [about|with] [a|the] {w}[.|?]", "{w}: [tell me a story.|write a story about it.|a short story, please.]",
    "[I like stories|Story time|Bedtime story|A story]: [a|the] {w}.", "[Have you got|Can you think of|Can you make up] a story about a {w}?", "story about [a|the] {w}",
)

# Keys that objects often have.
KEYS = tuple("name age city colour id price size title user count status date type value text level weight height code email time year state total".split())
# fmt: on
