/* markdown.js: shows Markdown as elements. Every text of the source becomes a text node, so HTML in it stays visible as
 * text. The time to parse is linear in the length of the source: models write hostile text too. */

import { copyButton } from "./copy.js";
import { h } from "./dom.js";
import { inline } from "./inline.js";

const DEPTH_MAX = 12; /* lists and quotes nested more deeply are shown as text */
const FENCE = /^( {0,3})(`{3,}|~{3,})(.*)/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+|$)/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?: +|\t|$)/;
const UNDECIDED = /^[\s\-*+_#>`~=|:\d.)]*$/; /* what a line is can change with its next character */

/* A text that grows. update() parses again only the last block, because later text cannot change earlier blocks. */
export class Markdown {
  element = h("div", { class: "markdown" });
  #text = "";
  #shown = "";
  #start = 0; /* position in the text at which the last block begins */
  #last = []; /* the nodes of the last block */

  /* `isComplete` says that no more text follows. Before that, an undecided last line is not shown yet. */
  update(text, isComplete) {
    if (!text.startsWith(this.#text)) {
      this.#start = 0;
      this.#last = [];
      this.element.replaceChildren();
      this.#shown = "";
    }
    this.#text = text;
    const line = text.lastIndexOf("\n") + 1;
    const end = !isComplete && UNDECIDED.test(text.slice(line)) ? line : text.length;
    const shown = text.slice(0, end);
    if (shown === this.#shown) {
      return;
    }
    this.#shown = shown;
    const lines = shown.slice(this.#start).split("\n");
    const blocks = [...blocksOf(lines.map((one) => one.replace(/\r$/, "")), 0)];
    for (const node of this.#last) {
      node.remove();
    }
    for (const { node } of blocks) {
      this.element.append(node);
    }
    const last = blocks.at(-1);
    this.#last = last ? [last.node] : [];
    for (let i = 0; i < (last?.line ?? 0); i += 1) {
      this.#start += lines[i].length + 1;
    }
  }
}

/* Yields {node, line}: the blocks of the lines, and the line at which each begins. */
function* blocksOf(lines, depth) {
  for (let i = 0; i < lines.length; ) {
    if (lines[i].trim() === "") {
      i += 1;
      continue;
    }
    const line = i;
    const [node, next] = blockAt(lines, i, depth);
    yield { node, line };
    i = next;
  }
}

function nodesOf(lines, depth) {
  return Array.from(blocksOf(lines, depth), (block) => block.node);
}

/* Returns the block that begins at line `i`, and the number of the line after the block. */
function blockAt(lines, i, depth) {
  const line = lines[i];
  if (isFence(line)) {
    return code(lines, i);
  }
  const heading = HEADING.exec(line);
  if (heading) {
    const level = Math.max(3, Math.min(6, heading[1].length + 1)); /* below the heading of the message, which is h2 */
    return [h(`h${level}`, {}, inline(line.slice(heading[0].length).replace(/ #+ *$/, "").trim())), i + 1];
  }
  if (RULE.test(line)) {
    return [h("hr"), i + 1];
  }
  if (depth < DEPTH_MAX && QUOTE.test(line)) {
    let end = i;
    while (end < lines.length && QUOTE.test(lines[end])) {
      end += 1;
    }
    const inside = lines.slice(i, end).map((one) => one.replace(QUOTE, ""));
    return [h("blockquote", {}, nodesOf(inside, depth + 1)), end];
  }
  if (depth < DEPTH_MAX && ITEM.test(line)) {
    return list(lines, i, depth);
  }
  if (isTable(lines, i)) {
    return table(lines, i);
  }
  let end = i + 1;
  while (end < lines.length && lines[end].trim() !== "" && !interrupts(lines, end, depth)) {
    end += 1;
  }
  return [h("p", {}, inline(lines.slice(i, end).map((one) => one.trimStart()).join("\n"))), end];
}

/* Whether a paragraph ends before line `i`, although there is no empty line. */
function interrupts(lines, i, depth) {
  const line = lines[i];
  return isFence(line) || HEADING.test(line) || RULE.test(line) || isTable(lines, i)
    || (depth < DEPTH_MAX && (QUOTE.test(line) || /^ {0,3}(?:[-*+]|1[.)]) +\S/.test(line)));
}

function isFence(line) {
  const found = FENCE.exec(line);
  return found !== null && !(found[2][0] === "`" && found[3].includes("`")); /* that is a code span */
}

function code(lines, i) {
  const [, indent, fence, info] = FENCE.exec(lines[i]);
  const isEnd = (line) => line.trim().length >= fence.length && line.trim() === fence[0].repeat(line.trim().length);
  let end = i + 1;
  while (end < lines.length && !isEnd(lines[end])) {
    end += 1;
  }
  const text = lines.slice(i + 1, end)
    .map((line) => line.slice(Math.min(indent.length, line.length - line.trimStart().length))).join("\n");
  const language = info.trim().split(/\s/)[0] || "text";
  const node = h("div", { class: "code" },
    h("div", { class: "code-head" }, h("span", {}, language), copyButton("Copy code", () => text)),
    h("pre", { tabindex: "0" }, h("code", {}, text)));
  return [node, end + 1];
}

function list(lines, i, depth) {
  const [, indent, marker] = ITEM.exec(lines[i]);
  const kind = marker.at(-1); /* another bullet begins another list */
  const items = [];
  let isLoose = false;
  while (i < lines.length) {
    const item = ITEM.exec(lines[i]);
    if (!item || item[2].at(-1) !== kind || item[1].length >= indent.length + 2 || RULE.test(lines[i])) {
      break;
    }
    const inside = item[1].length + Math.min(item[2].length + 1, 4); /* indentation of the item's other lines */
    const body = [lines[i].slice(item[0].length)];
    for (i += 1; i < lines.length; i += 1) {
      const space = lines[i].length - lines[i].trimStart().length;
      const isEmpty = lines[i].trim() === "";
      if (!isEmpty && space < item[1].length + 2
        && (body.at(-1).trim() === "" || ITEM.test(lines[i]) || interrupts(lines, i, depth))) {
        break;
      }
      body.push(isEmpty ? "" : lines[i].slice(Math.min(space, inside)));
    }
    isLoose ||= body.at(-1) === "" && ITEM.exec(lines[i] ?? "")?.[2].at(-1) === kind;
    items.push(nodesOf(body, depth + 1));
  }
  for (const nodes of isLoose ? [] : items) {
    if (nodes[0]?.tagName === "P") {
      nodes.splice(0, 1, ...nodes[0].childNodes);
    }
  }
  const isOrdered = /\d/.test(marker);
  const start = isOrdered && parseInt(marker, 10) !== 1 && parseInt(marker, 10);
  return [h(isOrdered ? "ol" : "ul", { start }, items.map((nodes) => h("li", {}, nodes))), i];
}

function isTable(lines, i) {
  return lines[i].includes("|") && i + 1 < lines.length && lines[i + 1].includes("-") && lines[i + 1].includes("|")
    && cells(lines[i + 1]).every((cell) => /^:?-+:?$/.test(cell));
}

function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function table(lines, i) {
  const head = cells(lines[i]);
  const rows = [];
  for (i += 2; i < lines.length && lines[i].includes("|"); i += 1) {
    const row = cells(lines[i]).slice(0, head.length); /* never filled up: the cells would be lines times columns */
    rows.push(h("tr", {}, row.map((cell) => h("td", {}, inline(cell)))));
  }
  const node = h("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Table" }, h("table", {},
    h("thead", {}, h("tr", {}, head.map((cell) => h("th", { scope: "col" }, inline(cell))))), h("tbody", {}, rows)));
  return [node, i];
}
