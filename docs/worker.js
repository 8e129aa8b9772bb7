// Opened from a folder, browsers start no worker, and search is one: run it in a hidden frame of the page instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => {
        const told = new MessageEvent("message", { data });
        this.dispatchEvent(told);
        if (this.onmessage) this.onmessage(told);
      };
      inner.importScripts = (...urls) =>
        urls.reduce((before, url) => before.then(() => this.load(url)), Promise.resolve());
      this.ready = this.load(script);
    }
    load(url) {
      return new Promise((done, failed) => {
        const inner = this.frame.contentDocument;
        const script = Object.assign(inner.createElement("script"), { src: url, onload: done, onerror: failed });
        inner.body.append(script);
      });
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
