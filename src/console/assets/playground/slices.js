// Work in slices, so that the page answers meanwhile.

const SLICE_MS = 8;

/**
 * A function to be awaited now and then: it lets the page do what waits once a slice is over.
 *
 * @param {AbortSignal} [signal] ends the work by an exception
 * @returns {() => Promise<void> | undefined}
 */
export function slices(signal) {
  let until = performance.now() + SLICE_MS;
  return () => {
    if (performance.now() <= until) return undefined;
    return pause().then(() => {
      signal?.throwIfAborted();
      until = performance.now() + SLICE_MS;
    });
  };
}

/** A message comes after input and painting, unlike a promise. */
function pause() {
  return new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      done();
    };
    port2.postMessage(null);
  });
}
