/* show.mjs - the representations of a value: a map of MIME types.
 *
 * The text comes from util.inspect. A value offers more with a method
 * [Symbol.for('Jupyter.display')](), as in Deno's notebooks, which returns the map; display.html()
 * and similar functions make such values. */
import util from 'node:util';

import { cleanText, cleanValue } from './wire.mjs';

const DISPLAY = Symbol.for('Jupyter.display');
const SILENT = Symbol('shown already');
const TEXT_MAX = 1 << 20;
const OPTIONS = { depth: 4, maxArrayLength: 1000, maxStringLength: 256 << 10, breakLength: 80 };
const KINDS = {
  html: 'text/html', markdown: 'text/markdown', svg: 'image/svg+xml', latex: 'text/latex', javascript: 'application/javascript', json: 'application/json',
  png: 'image/png', jpeg: 'image/jpeg', pdf: 'application/pdf', text: 'text/plain',
};

export function textOf(value) {
  try {
    const text = util.inspect(value, OPTIONS);
    return cleanText(text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}... cut here: ${text.length} characters` : text);
  } catch (error) {
    let why = 'an error';
    try { why = String(error); } catch { /* String() of the error may throw too */ }
    return cleanText(`<a value whose inspection raised ${why.slice(0, 500)}>`);
  }
}

function entry(mime, value) {
  if (mime === 'application/json' || mime.endsWith('+json')) return cleanValue(value);
  if (ArrayBuffer.isView(value)) return Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('base64');
  if (value instanceof ArrayBuffer) return Buffer.from(value).toString('base64');
  return cleanText(String(value));
}

export function rawBundle(forms, meta) {
  const bundle = { data: {}, meta: cleanValue(meta ?? {}) };
  for (const [mime, value] of Object.entries(forms)) {
    if (value === undefined || value === null || mime.length < 1 || mime.length > 128) continue;
    try {
      bundle.data[cleanText(mime)] = entry(mime, value);
    } catch (error) {
      bundle.omitted = { ...bundle.omitted, [cleanText(mime)]: cleanText(String(error.message)).slice(0, 500) };
    }
  }
  return bundle;
}

export function bundleOf(value) {
  let forms;
  try {
    if ((typeof value === 'object' || typeof value === 'function') && value !== null && typeof value[DISPLAY] === 'function') forms = value[DISPLAY]();
  } catch (error) {
    process.stderr.write(`${textOf(error)}\n`);
  }
  const bundle = rawBundle(typeof forms === 'object' && forms !== null ? forms : {});
  if (!('text/plain' in bundle.data)) bundle.data['text/plain'] = textOf(value);
  return bundle;
}

export function isSilent(value) {
  return value === SILENT;
}

/* The function display(), with a function for each format. */
export function display(show) {
  const main = (value, options) => {
    show(options?.raw === true ? rawBundle(value, options.metadata) : bundleOf(value));
    return SILENT;
  };
  for (const [name, mime] of Object.entries(KINDS)) {
    main[name] = (value) => {
      show(rawBundle({ [mime]: value }));
      return SILENT;
    };
  }
  return main;
}
