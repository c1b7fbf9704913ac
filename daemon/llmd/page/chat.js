/* chat.js */

import { h } from "./dom.js";

export class ChatView {
  element = h("div");
  constructor(feed) { this.feed = feed; }
  show() {}
}
