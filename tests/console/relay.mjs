// A TCP relay before the server, which a spec stops and starts again: to the browser, the server itself.

import net from 'node:net';

import { server } from './harness.mjs';

export class Relay {
  #sockets = new Set();
  #listener = null;
  #port = 0;
  #isHeld = false;

  /** Accepts connections, on the same port as before if there was one. */
  async start() {
    const { hostname, port } = new URL(server);
    this.#listener = net.createServer((inside) => {
      const outside = net.connect(Number(port), hostname);
      for (const [from, to] of [[inside, outside], [outside, inside]]) {
        this.#sockets.add(from);
        from.on('error', () => to.destroy());
        from.on('close', () => {
          this.#sockets.delete(from);
          to.destroy();
        });
        from.pipe(to);
      }
      if (this.#isHeld) inside.pause();
    });
    await new Promise((listening) => this.#listener.listen(this.#port, '127.0.0.1', listening));
    this.#port = this.#listener.address().port;
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Takes no more bytes from connections that begin now, as a slow network does. */
  hold(isHeld) {
    this.#isHeld = isHeld;
  }

  /** Breaks all connections and refuses new ones. */
  async stop() {
    const closed = new Promise((done) => this.#listener.close(done));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }
}
