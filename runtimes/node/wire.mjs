/* wire.mjs - JSON lines on the kernel socket: at most 1 MiB, at most 32 levels deep, ASCII, and
 * valid for a strict reader.
 *
 * Events are written synchronously and not through the event loop, which a cell may block for long.
 * An interrupt can end a cell in the middle of a write; so the rest of a line stays in `rest`, and
 * the next write begins with it. */
import fs from 'node:fs';
import net from 'node:net';

export const LINE_MAX = 1 << 20;
const DEPTH_MAX = 32;
const VALUE_DEPTH = DEPTH_MAX - 4; /* a value is below the event, its data, and the entry */
const TEXT_KEEP = 40 << 10;
const INT64 = 2 ** 63;

const { stringify, parse } = JSON;

/* Replaces unpaired surrogates and NULs. */
export function cleanText(text) {
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|\0/g, '\ufffd');
}

/* The value as strict JSON; throws if that is not possible. */
export function cleanValue(value, depth = VALUE_DEPTH) {
  if (value !== null && typeof value?.toJSON === 'function') value = value.toJSON();
  switch (typeof value) {
    case 'string': return cleanText(value);
    case 'boolean': return value;
    case 'bigint': return String(value);
    case 'number':
      if (!Number.isFinite(value)) return null;
      return Number.isInteger(value) && Math.abs(value) >= INT64 ? String(BigInt(value)) : value;
    case 'object': break;
    default: return null;
  }
  if (value === null) return null;
  if (depth === 0) throw new Error(`nested deeper than ${VALUE_DEPTH}`);
  if (Array.isArray(value)) return value.map((v) => cleanValue(v, depth - 1));
  const found = {};
  for (const [key, one] of Object.entries(value)) {
    if (one !== undefined && typeof one !== 'function') Object.defineProperty(found, cleanText(key), { value: cleanValue(one, depth - 1), enumerable: true, configurable: true, writable: true });
  }
  return found;
}

function ascii(value) {
  return stringify(value).replace(/[\u007f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

function sizeText(size) {
  return size >= 100 << 10 ? `${(size / (1 << 20)).toFixed(1)} MiB` : `${size} bytes`;
}

/* The line of an event, cut to LINE_MAX: the largest entries of its data are removed first, and
 * named in `omitted`. */
export function fit(event) {
  const { data, omitted, ...head } = event;
  const left = { ...omitted };
  const texts = new Map(Object.entries(data ?? {}).map(([mime, value]) => [mime, ascii(value)]));
  for (;;) {
    let line = ascii(Object.keys(left).length ? { ...head, omitted: left } : head);
    if (data) line = `${line.slice(0, -1)},"data":{${[...texts].map(([mime, text]) => `${ascii(mime)}:${text}`).join(',')}}}`;
    if (line.length < LINE_MAX) return `${line}\n`;
    if (!texts.size) {
      return `${ascii({ event: head.event, id: head.id, count: head.count, name: head.name, omitted: { event: `${sizeText(line.length)} is more than a line of 1 MiB` } })}\n`;
    }
    const [worst, text] = [...texts].reduce((a, b) => (b[1].length > a[1].length ? b : a));
    if (worst === 'text/plain' && text.length > 8 * TEXT_KEEP) {
      texts.set(worst, ascii(cleanText(`${data[worst].slice(0, TEXT_KEEP)}\n... cut here: ${data[worst].length} characters are more than fit into a line`)));
    } else {
      left[worst] = `${sizeText(text.length)} is more than a line of 1 MiB`;
      texts.delete(worst);
    }
  }
}

function depthOf(text) {
  let depth = 0;
  let deepest = 0;
  for (const [c] of text.replace(/"(?:[^"\\]|\\.)*"/g, '').matchAll(/[[\]{}]/g)) {
    depth += c === '[' || c === '{' ? 1 : -1;
    deepest = Math.max(deepest, depth);
  }
  return deepest;
}

export class Wire {
  constructor(fd, onRequest, onEnd) {
    this.fd = fd;
    this.pause = new Int32Array(new SharedArrayBuffer(4));
    this.rest = Buffer.alloc(0);
    this.parts = [];
    this.length = 0;
    this.dropping = false;
    this.onRequest = onRequest;
    this.socket = new net.Socket({ fd, readable: true, writable: false });
    this.socket.on('data', (data) => this.take(data));
    this.socket.on('error', onEnd);
    this.socket.on('close', onEnd);
    this.socket.on('end', onEnd);
  }

  send(event) {
    this.rest = Buffer.concat([this.rest, Buffer.from(fit(event), 'latin1')]);
    while (this.rest.length) {
      try {
        this.rest = this.rest.subarray(fs.writeSync(this.fd, this.rest));
      } catch (error) {
        if (error.code !== 'EAGAIN') return;
        Atomics.wait(this.pause, 0, 0, 2); /* the reader is slow; this end of the socket does not block */
      }
    }
  }

  refuse(why, id = null) {
    this.send({ event: 'refused', id, why: cleanText(why) });
  }

  take(data) {
    while (data.length) {
      const at = data.indexOf(10);
      const part = at < 0 ? data : data.subarray(0, at);
      if (!this.dropping) {
        this.parts.push(part);
        this.length += part.length;
      }
      if (this.length >= LINE_MAX) {
        this.dropping = true;
        this.parts = [];
        this.length = 0;
      }
      if (at < 0) return;
      data = data.subarray(at + 1);
      const line = Buffer.concat(this.parts);
      if (this.dropping) this.refuse(`a line is longer than ${LINE_MAX} bytes`);
      else if (line.length) this.parse(line);
      this.parts = [];
      this.length = 0;
      this.dropping = false;
    }
  }

  parse(line) {
    let request;
    try {
      const text = new TextDecoder('utf-8', { fatal: true }).decode(line);
      if (depthOf(text) > DEPTH_MAX) throw new Error(`nested deeper than ${DEPTH_MAX}`);
      request = parse(text);
    } catch (error) {
      this.refuse(`not JSON: ${error.message}`.slice(0, 500));
      return;
    }
    if (typeof request !== 'object' || request === null || Array.isArray(request)) this.refuse('not an object');
    else if (typeof request.id !== 'string' || request.id.length < 1 || [...request.id].length > 64) this.refuse('id is not a string of 1 to 64 characters');
    else this.onRequest(request);
  }
}
