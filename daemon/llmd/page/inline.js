/* inline.js: the elements of Markdown within a block: code, emphasis, links. Images become links, because the policy of
 * the page forbids images of other hosts. */

import { h } from "./dom.js";

const LINK = /^(?:https?:|mailto:)/i; /* other addresses, such as those of scripts, stay text */

/* The parts of a text that can be more than text. After an alternative has begun to match, it reads a limited number of
 * characters, or only characters that cannot begin it again. So the time is linear in the length of the text. */
const PARTS = new RegExp([
  /\\[!-/:-@[-`{-~]/, /`+/,
  /!?\[[^[\]\n]{0,1000}\]\([^\s()]{0,2000}(?:\([^\s()]{0,200}\)[^\s()]{0,200})?(?: "[^"\n]{0,300}")?\)/,
  /<(?:https?:|mailto:)[^\s<>]{1,2000}>/, /\bhttps?:\/\/[^\s<>"'`*]{1,2000}/, /\*+|_+|~~|\n/,
].map((part) => part.source).join("|"), "g");
const TAGS = { "*": "em", "_": "em", "**": "strong", "__": "strong", "~~": "del" };

/* Returns the nodes of a text within a block. `isInLink` leaves links out, because links cannot be nested. */
export function inline(text, isInLink = false) {
  const frames = [{ mark: "", nodes: [] }]; /* the open marks of emphasis; each mark at most once, so at most 5 */
  const add = (node) => frames.at(-1).nodes.push(node);
  const close = (depth) => {
    while (frames.length > depth + 1) { /* marks that were never closed are text */
      const { mark, nodes } = frames.pop();
      [mark, ...nodes].forEach(add);
    }
  };
  const ends = new Runs(text);
  let at = 0;
  const parts = new RegExp(PARTS);
  for (let part; (part = parts.exec(text)) !== null; at = parts.lastIndex) {
    add(text.slice(at, part.index));
    const word = part[0];
    if (word[0] === "\\") {
      add(word[1]);
    } else if (word[0] === "`") {
      const end = ends.next(word.length, parts.lastIndex);
      if (end === undefined) {
        add(word);
      } else {
        const inside = text.slice(parts.lastIndex, end).replaceAll("\n", " ");
        const isPadded = inside.startsWith(" ") && inside.endsWith(" ") && inside.trim() !== "";
        add(h("code", {}, isPadded ? inside.slice(1, -1) : inside));
        parts.lastIndex = end + word.length;
      }
    } else if (word[0] === "*" || word[0] === "_" || word[0] === "~") {
      emphasis(word, text[part.index - 1] ?? " ", text[parts.lastIndex] ?? " ", frames, add, close);
    } else if (word === "\n") {
      add(h("br"));
    } else {
      parts.lastIndex -= addLink(word, add, isInLink);
    }
  }
  add(text.slice(at));
  close(0);
  return frames[0].nodes.filter((node) => node !== "");
}

/* The runs of backquotes of a text. A code span ends at the next run that is as long as the run at its begin. The text is
 * searched only once, because it can have runs of many lengths, none of which ends a span. */
class Runs {
  #text;
  #byLength = null; /* the positions of the runs of each length, the last one first */

  constructor(text) {
    this.#text = text;
  }

  /* Returns the position of the next run of this length, or undefined. `from` must not become smaller. */
  next(length, from) {
    if (this.#byLength === null) {
      this.#byLength = new Map();
      for (const { 0: run, index } of [...this.#text.matchAll(/`+/g)].reverse()) {
        this.#byLength.has(run.length) ? this.#byLength.get(run.length).push(index) : this.#byLength.set(run.length, [index]);
      }
    }
    const positions = this.#byLength.get(length) ?? [];
    while (positions.at(-1) < from) {
      positions.pop();
    }
    return positions.at(-1);
  }
}

function emphasis(run, before, after, frames, add, close) {
  const isInWord = run[0] === "_" && /\w/.test(before) && /\w/.test(after);
  let rest = run.length > 3 || isInWord ? 0 : run.length;
  if (rest === 0) {
    add(run);
  }
  while (rest > 0) {
    const open = frames.at(-1).mark;
    const isTop = open !== "" && open[0] === run[0] && open.length <= rest;
    const mark = isTop ? open : run[0].repeat(rest >= 2 ? 2 : 1);
    const depth = frames.findIndex((frame) => frame.mark === mark);
    if (depth > 0 && !/\s/.test(before)) {
      close(depth);
      const { nodes } = frames.pop();
      add(h(TAGS[mark], {}, nodes));
    } else if (depth < 0 && !/\s/.test(after)) {
      frames.push({ mark, nodes: [] });
    } else {
      add(mark);
    }
    rest -= mark.length;
  }
}

/* Adds a link, or its text if the address is not allowed. An image becomes a link. Returns how many characters at the end
 * of a bare address belong to the sentence. */
function addLink(word, add, isInLink) {
  const link = /^!?\[([^\]]*)\]\((\S*?)(?: "[^"]*")?\)$/.exec(word);
  const bare = word.replace(/^<|>$/g, "");
  const address = link ? link[2] : link === null && word[0] !== "<" ? bare.replace(/[.,;:!?)\]]{1,9}$/, "") : bare;
  if (isInLink || !LINK.test(address)) {
    add(word);
    return 0;
  }
  const text = link ? (link[1] ? inline(link[1], true) : [address]) : [address];
  add(h("a", { href: address, rel: "noopener noreferrer", target: "_blank" }, word[0] === "!" ? "Image: " : "", text));
  return link || word[0] === "<" ? 0 : bare.length - address.length;
}
