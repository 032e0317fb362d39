/* output.mjs - process.stdout and process.stderr of a cell: written synchronously, and without a
 * state that an interrupt could leave incomplete.
 *
 * An interrupt terminates JavaScript anywhere. A Node stream that is terminated inside write()
 * stays in the writing state forever and buffers all further output. So write() is replaced as a
 * whole. */
import fs from 'node:fs';
import { Writable } from 'node:stream';

function writeAll(fd, data, pause) {
  let rest = data;
  while (rest.length) {
    try {
      rest = rest.subarray(fs.writeSync(fd, rest));
    } catch (error) {
      if (error.code !== 'EAGAIN') return error;
      Atomics.wait(pause, 0, 0, 2);
    }
  }
  return null;
}

class Output extends Writable {
  constructor(fd) {
    super({ decodeStrings: false });
    this.fd = fd;
    this.pause = new Int32Array(new SharedArrayBuffer(4));
    this.isTTY = false;
    this._type = 'pipe';
  }

  write(chunk, encoding, callback) {
    const done = typeof encoding === 'function' ? encoding : callback;
    const data = typeof chunk === 'string' ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8') : chunk;
    if (!ArrayBuffer.isView(data)) throw new TypeError('The "chunk" argument must be of type string or an instance of Buffer or Uint8Array');
    const error = writeAll(this.fd, Buffer.from(data.buffer, data.byteOffset, data.byteLength), this.pause);
    if (typeof done === 'function') process.nextTick(done, error);
    return true;
  }

  end(chunk, encoding, callback) { /* does not close: the next cell writes too */
    if (chunk !== undefined && chunk !== null && typeof chunk !== 'function') this.write(chunk, encoding);
    const done = [chunk, encoding, callback].find((f) => typeof f === 'function');
    if (done) process.nextTick(done);
    return this;
  }

  destroy() {
    return this;
  }
}

export function install() {
  for (const [name, fd] of [['stdout', 1], ['stderr', 2]]) {
    const stream = new Output(fd);
    Object.defineProperty(process, name, { get: () => stream, configurable: true, enumerable: true });
    console[`_${name}`] = stream;
  }
}
