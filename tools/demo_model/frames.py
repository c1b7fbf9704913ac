"""Ways to tell and to ask for any fact that a noun phrase names (`my hobby`, `the code`), whatever its kind.

Only training uses them. `{c}` is the noun phrase, `{v}` the value; `[a|b]` are alternatives.
"""

from __future__ import annotations

from tools.demo_model.kinds import Kind

# fmt: off
ASK = (
    "[What was|What's|Whats|What is|What might be|What would be] {c}[?| then?| now?| once more?| as I told you?| by the way?]",
    "[Say|Tell me|Give me|Name|State|Write|Show me|Report|Recall|Recite|Spit out|Print|Output] {c}[.|, please.| for me.| now.|, will you?|, if you can.]",
    "[Please|Now|Kindly|Go on and|Try to|You may|I ask you to|It is time to] [say|name|state|recall|write|give me|tell me|remember] {c}[.|!|, thanks.]",
    "[I need|I want|I'd like|I would like|I am looking for|I am asking for|I am asking about|I was wondering about|I ask for] {c}[.|, please.|: what is it?|. What is it?| from you.]",
    "{c}[, which is it|, what was it|, do you have it|, can you say it|: what is that|, if you know it|, please| please| - which is it|, what would that be]?",
    "[How about|What about|And what about|Anything about|Any idea about|Any news of|Now what of|What do you say about] {c}?",
    "[Do you have|Have you got|Have you kept|Have you stored|Have you saved|Have you still got|Do you keep|Did you store|Did you note] {c}[?| for me?| somewhere?| in mind?| in memory?]",
    "[Is|Was] {c} [known to you|something you know|in your memory|clear to you|still there]?",
    "[Let's talk about|Let's return to|Back to|Now to|Concerning|Regarding|As to|A word about|Next,] {c}[: what is it?|, what was it?|. What is it?|.]",
    "[See if you know|Check if you know|Prove that you know|Show that you know|Show me you know|I doubt that you know|I bet you know|I think you know] {c}.",
    "[What did I say|What did I tell you|What have I told you|What have I said|What did I write|What did I mention] [about|as|for|of] {c}?",
    "What [would|do|should|will] you [say|give as|write as|put as|answer for|name as] {c}[?| when asked?]",
    "[Complete this|Complete|Finish this|Finish the sentence|Fill in the gap|Fill in]: {c} is[ ...|?| ___|]",
    "{c} [is|was|would be|should be] [what|which one|which|again what]?",
    "I [lost|forgot|forget|need to know|need to hear|must know|have to know|am not sure about|keep forgetting|no longer know|wish I knew] {c}[.|, what is it?|, help me.|. What was it?]",
    "[Someone asked me for|They ask me for|They want to know|My friend asks for|Somebody needs|The form asks for|I have to fill in] {c}[.|, what do I say?|. What is it?]",
    "[Look up|Fetch|Get|Find|Pull up|Bring back|Take] {c} [from memory|from before|in your memory|from our talk|for me].",
    "[You know|You remember|You still know|You surely know|You have heard|You noted] {c}[, right?|, don't you?|, no?|, so what is it?]",
    "[Which is|Which was|Which one is|Which one was] {c}, [then|please|if I may ask|by the way]?",
    "[Answer this|Riddle|Tell me this|Next question|Another question|The question is|Question]: {c}?",
)
TELL = (
    "[As to|Regarding|Concerning|About|Now to|With regard to] {c}[:|,] it is {v}.",
    "{c} [was|will be|has become|is simply|is just|is of course|is still|is now|is always|reads|goes|remains|turns out to be] {v}.",
    "{c}[:| =| -| is:|?] {v}.",
    "[If anyone asks for|When they ask for|When I ask for|Should I ask for|Whenever I ask for] {c}, [it is|say|the answer is|answer] {v}.",
    "[Set|Change|Put|Make] {c}[ to|: to|: set it to] {v}.",
    "[I want|I would like|I'd like] {c} to be {v}.",
    "[Let|Take] {c} [be|to be|as] {v}.",
    "[It's|It is|That's|That is] {v}, {c}.",
    "[Here comes|Here is|This is|Let me give you|I give you|I tell you|You get|Store|Write down|Record] {c}: {v}.",
    "[Did you know that|Guess what,|Fun fact:|News:|Attention:|Important:|Fact:|Memo:] {c} is {v}.",
    "{v} [is|was|has become|will be|serves as|counts as|stands for|would be] {c}.",
    "[They say|People say|Some say|Everyone knows|You may know|I believe|I am sure|I can say|I admit|It is a fact that] {c} is {v}.",
    "{c} is {v}[, I think|, I believe|, as I said|, of course|, nothing else|, always|, for now|, at last].",
    "{c}, [that is|that would be|which is|which was] {v}.",
)
CLAUSE = (
    "[Any idea|Any clue|No idea|Guess|Explain|I should know|I need to know|I must know|I have to say|Someone wants to know|They ask me] {c}[.|?| please.]",
    "[Are you able to tell|Can you find out|Can you work out|Is it known|Are you sure|Do you have any idea|Would you know|Could you know] {c}?",
    "[I lost track of|I am not sure|I keep forgetting|It slipped my mind|I've no idea|I have no idea|I never remember|I am asking myself] {c}[.|, help me.|, can you help?|, do you know it?|, any idea?]",
    "[You know|You remember|You must know|You still know|Surely you know|I told you|I did tell you|You heard] {c}[, right?|, don't you?|, no?|, so tell me.]",
    "[Let's see if you know|Let us check if you remember|I wonder if you know|Let me test if you recall|I would like to know|I'd love to hear|Please let me know|Inform me] {c}.",
)
# fmt: on


def noun_phrase(kind: Kind) -> str:
    """Returns a noun phrase for a fact of this kind, as a template; empty if only a clause can express it."""
    if kind.key == "called":
        return "[the name of my {n}|my {n}'s name]"
    return kind.mine if kind.mine.startswith(("my ", "the ")) else ""
