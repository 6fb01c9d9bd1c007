// Splits the output of a process into lines.

/** Lines of at most `limit` bytes. */
export class Lines {
  #parts = [];
  #size = 0;
  #limit;

  constructor(limit) {
    this.#limit = limit;
  }

  /** The lines that this chunk completes. Throws if one is too long. */
  push(chunk) {
    const lines = [];
    let start = 0;
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, start)) {
      this.#keep(chunk.subarray(start, end));
      lines.push(Buffer.concat(this.#parts).toString("utf8").replace(/\r$/, ""));
      this.clear();
      start = end + 1;
    }
    this.#keep(chunk.subarray(start));
    return lines;
  }

  clear() {
    this.#parts = [];
    this.#size = 0;
  }

  #keep(part) {
    this.#size += part.length;
    if (this.#size > this.#limit) {
      this.clear();
      throw new Error(`a message of the server is longer than ${this.#limit} bytes`);
    }
    if (part.length > 0) {
      this.#parts.push(part);
    }
  }
}
