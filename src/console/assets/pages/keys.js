import { element, replace } from "../elements.js";
import { text } from "../text.js";

class Page extends HTMLElement {
  connectedCallback() {
    replace(this, element("header", { class: "page-head" }, element("div", {}, element("h1", {}, text.pages.keys))));
  }
}

customElements.define("page-keys", Page);
