/* complete.mjs - completions at the cursor, and information about the name there.
 *
 * V8 itself evaluates the object before the dot and refuses every side effect, including getters of
 * user code. */
import Module from 'node:module';

import { textOf } from './show.mjs';
import { cleanText } from './wire.mjs';

const MATCHES_MAX = 500;
const TEXT_MAX = 32 << 10;
const CHAIN = /(?:[\p{ID_Start}$_][\p{ID_Continue}$]*\s*\??\.\s*)*[\p{ID_Start}$_]?[\p{ID_Continue}$]*$/u;
const KEYWORDS = ('async await break case catch class const continue debugger default delete do else export extends false finally for function if import in '
  + 'instanceof let new null of return static super switch this throw true try typeof undefined var void while with yield').split(' ');

export class Complete {
  constructor(call, value) {
    this.call = call;
    this.value = value;
  }

  /* {value} of an expression that can be evaluated without a side effect, or null. */
  look(expression) {
    const answer = this.call('Runtime.evaluate', { expression, throwOnSideEffect: true, timeout: 500, objectGroup: 'look', silent: true });
    const found = !answer || answer.exceptionDetails ? null : { value: this.value(answer.result) };
    this.call('Runtime.releaseObjectGroup', { objectGroup: 'look' });
    return found;
  }

  globals() {
    return [...this.call('Runtime.globalLexicalScopeNames', {}).names, ...this.properties(globalThis), ...KEYWORDS];
  }

  properties(value) {
    const names = new Set();
    for (let one = Object(value), i = 0; one !== null && i < 20; one = Object.getPrototypeOf(one), i += 1) {
      for (const name of Object.getOwnPropertyNames(one)) if (/^[\p{ID_Start}$_]/u.test(name)) names.add(name);
    }
    return names;
  }

  complete(code, cursor) {
    const text = [...code].slice(0, cursor).join('');
    const module = /(?:require\s*\(\s*|import\s*\(\s*|from\s+|import\s+)(['"])([\w:/.@-]*)$/.exec(text);
    let begun;
    let names;
    if (module) {
      begun = module[2];
      names = Module.builtinModules.flatMap((name) => (name.startsWith('_') ? [] : [name, `node:${name}`]));
    } else {
      const chain = CHAIN.exec(text)[0];
      const dot = chain.lastIndexOf('.');
      begun = chain.slice(dot + 1).trimStart();
      const base = dot < 0 ? null : chain.slice(0, dot).replace(/\?$/, '').trim();
      const found = base ? this.look(base) : null;
      if (dot < 0) names = this.globals();
      else names = found && found.value !== null && found.value !== undefined ? this.properties(found.value) : [];
    }
    const matches = [...new Set(names)].filter((name) => name.startsWith(begun) && !name.startsWith('__cove')).sort().slice(0, MATCHES_MAX);
    return { matches: matches.map(cleanText), start: cursor - [...begun].length, end: cursor };
  }

  inspect(code, cursor) {
    const points = [...code];
    const after = /^[\p{ID_Continue}$]*/u.exec(points.slice(cursor).join(''))[0];
    const before = points.slice(0, cursor).join('');
    const calls = /([\p{ID_Start}$_][\p{ID_Continue}$.]*)\s*\([^()]*$/u.exec(before);
    for (const name of [CHAIN.exec(before + after)[0], calls?.[1]]) {
      const found = name && !name.endsWith('.') ? this.look(name) : null;
      if (found && found.value !== undefined) return { found: true, data: { 'text/plain': this.describe(name, found.value) } };
    }
    return { found: false, data: {} };
  }

  describe(name, value) {
    const lines = [];
    if (typeof value === 'function') {
      const source = Function.prototype.toString.call(value);
      const end = source.search(/=>|\{/);
      lines.push(`Signature: ${(end > 0 ? source.slice(0, end) : source).trim().slice(0, 500)}`);
    }
    lines.push(`Type:      ${value === null ? 'null' : typeof value}`);
    if (typeof value !== 'function') lines.push(`Value:     ${textOf(value).slice(0, 4000)}`);
    return cleanText(lines.join('\n')).slice(0, TEXT_MAX);
  }
}
