// Server-sent events, as an async iterable.

/**
 * Splits text into events. Only understands what leash sends: `event`, `data`, comments.
 */
export class Splitter {
  #rest = "";
  #type = "";
  #lines = [];

  /**
   * @param {string} text the next piece, cut anywhere
   * @returns {{type: string, data: string}[]}
   */
  push(text) {
    const found = [];
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (this.#lines.length > 0) {
          found.push({ type: this.#type || "message", data: this.#lines.join("\n") });
        }
        this.#type = "";
        this.#lines = [];
        continue;
      }
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "event") {
        this.#type = value;
      } else if (name === "data") {
        this.#lines.push(value);
      }
    }
    return found;
  }
}

/**
 * The events of one stream. The stream is open when the caller gets it, so nothing that happens from then on is missed. It does not keep
 * the process alive. Ends when it is closed, when the daemon ends, and after the event `lost` (it was not read for too long).
 */
export class EventStream {
  #answer;
  #waiting = [];
  #next = null;
  #over = false;

  /** @param {import("node:http").IncomingMessage} answer */
  constructor(answer) {
    this.#answer = answer;
    const splitter = new Splitter();
    answer.setEncoding("utf8");
    answer.on("data", (text) => {
      for (const { type, data } of splitter.push(text)) {
        this.#waiting.push({ type, ...JSON.parse(data) });
      }
      this.#wake();
    });
    // A stream of a daemon that is gone just ends, which is no error of the reader.
    answer.on("close", () => {
      this.#over = true;
      this.#wake();
    });
    answer.on("error", () => {});
    answer.socket?.unref();
  }

  #wake() {
    const next = this.#next;
    this.#next = null;
    next?.();
  }

  /** The next event; undefined after the last. */
  async next() {
    while (this.#waiting.length === 0 && !this.#over) {
      // A caller that waits for an event wants the process to live until then.
      this.#answer.socket?.ref();
      await new Promise((resolve) => {
        const before = this.#next;
        this.#next = () => {
          before?.();
          resolve();
        };
      });
      this.#answer.socket?.unref();
    }
    return this.#waiting.shift();
  }

  /** Stops listening. */
  close() {
    this.#answer.destroy();
  }

  async *[Symbol.asyncIterator]() {
    try {
      for (let event = await this.next(); event !== undefined; event = await this.next()) {
        yield event;
      }
    } finally {
      this.close();
    }
  }

  async [Symbol.asyncDispose]() {
    this.close();
  }
}
