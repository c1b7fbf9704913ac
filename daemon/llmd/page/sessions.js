/* sessions.js */

import { h } from "./dom.js";

export class SessionsView {
  element = h("div");
  constructor(feed) { this.feed = feed; }
  show() {}
}
