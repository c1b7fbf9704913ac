/* now.js */

import { h } from "./dom.js";

export class NowView {
  element = h("div");
  constructor(feed) { this.feed = feed; }
  show() {}
}
