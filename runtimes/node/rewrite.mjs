/* rewrite.mjs - rewrites the three statements that V8's REPL mode does not accept: static imports,
 * import() and export.
 *
 * `import a, {b as c} from 'x'` becomes `const {default: a, b: c} = await __coveImport('x')`, on
 * the same lines, so that positions in errors stay correct. That needs no parser; it only has to
 * skip strings, templates, comments and regular expressions. A cell without these words is not
 * changed. */

const SKIP = /\s+|\/\/[^\n]*|\/\*[^]*?\*\//y;
const WORD = /[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*/uy;
const NUMBER = /\d[\w.]*/y;
const STRING = /'(?:[^'\\\n]|\\[^])*'|"(?:[^"\\\n]|\\[^])*"/y;
const REGEX = /\/(?![*/])(?:[^\\/[\n]|\\[^\n]|\[(?:[^\]\\\n]|\\[^\n])*\])+\/[a-z]*/y;
const BEFORE_REGEX = new Set(['return', 'typeof', 'case', 'in', 'of', 'delete', 'void', 'throw', 'new', 'else', 'do', 'await', 'yield', 'instanceof']);
const NAME = '[\\p{ID_Start}$_][\\p{ID_Continue}$]*';
const BLANK = '(?:\\s|//[^\\n]*\\n|/\\*[^]*?\\*/)*';
const IMPORT = new RegExp(`import${BLANK}(?:(?<only>${NAME})?${BLANK},?${BLANK}(?:\\*${BLANK}as\\s+(?<all>${NAME})|\\{(?<named>[^}]*)\\})?${BLANK}from)?${BLANK}`
  + `(?<from>'[^'\\n]*'|"[^"\\n]*")(?:[ \\t]*(?:assert|with)${BLANK}(?<how>\\{[^}]*\\}))?[ \\t]*;?`, 'uy');
const EXPORT = /export\s+(?:default\s+)?(?=(?:async|function|class|const|let|var)\b)|export\s+default\s+|export\s*\{[^}]*\}\s*;?/uy;

function names(found) {
  const parts = [];
  if (found.only) parts.push(`default: ${found.only}`);
  for (const part of (found.named ?? '').replace(/\/\*[^]*?\*\/|\/\/[^\n]*/g, '').split(',')) {
    const [from, to] = part.trim().split(/\s+as\s+/);
    if (from) parts.push(to ? `${from}: ${to}` : from);
  }
  return parts;
}

function declaration(match) {
  const found = match.groups;
  const how = found.how ? `, {${match[0].includes('assert') ? 'assert' : 'with'}: ${found.how}}` : '';
  const call = `await __coveImport(${found.from}${how})`;
  const parts = names(found);
  const lines = '\n'.repeat(match[0].split('\n').length - 1);
  if (found.all) return `const ${found.all} = ${call}${parts.length ? `, {${parts.join(', ')}} = ${found.all}` : ''};${lines}`;
  return parts.length ? `const {${parts.join(', ')}} = ${call};${lines}` : `${call};${lines}`;
}

function at(pattern, text, index) {
  pattern.lastIndex = index;
  return pattern.exec(text);
}

export function rewrite(code) {
  if (!/\b(?:import|export)\b/.test(code)) return code;
  const out = [];
  const open = []; /* open brackets, and '`' for the braces of a template */
  let index = 0;
  let last = ''; /* the previous token, '' at the beginning */
  let fresh = true; /* there is a newline after the previous token */

  const template = () => { /* from after a '`' or the '}' of a part to the next '${' or the end */
    while (index < code.length) {
      if (code[index] === '\\') index += 2;
      else if (code[index] === '`') { index += 1; last = 'x'; return; }
      else if (code.startsWith('${', index)) { index += 2; open.push('`'); last = '{'; return; }
      else index += 1;
    }
  };
  const copy = (from) => out.push(code.slice(from, index));

  while (index < code.length) {
    const from = index;
    let match = at(SKIP, code, index);
    if (match) {
      fresh = fresh || match[0].includes('\n');
      index = SKIP.lastIndex;
      copy(from);
      continue;
    }
    const c = code[index];
    if ((match = at(WORD, code, index))) {
      index = WORD.lastIndex;
      const starts = open.length === 0 && (fresh || last === '' || last === ';' || last === '}');
      const whole = match[0] === 'import' && starts ? at(IMPORT, code, from) : match[0] === 'export' && starts ? at(EXPORT, code, from) : null;
      if (whole) {
        index = from + whole[0].length;
        out.push(match[0] === 'import' ? declaration(whole) : '\n'.repeat(whole[0].split('\n').length - 1));
        last = ';';
        fresh = false;
        continue;
      }
      if (match[0] === 'import' && last !== '.' && /^\s*\(/.test(code.slice(index, index + 200))) out.push('__coveImport');
      else if (match[0] === 'import' && last !== '.' && /^\s*\.\s*meta\b/.test(code.slice(index, index + 200))) {
        index += /^\s*\.\s*meta/.exec(code.slice(index, index + 200))[0].length;
        out.push('__coveMeta');
      } else copy(from);
      last = match[0];
    } else if ((match = at(NUMBER, code, index)) || (match = at(STRING, code, index))) {
      index += match[0].length;
      last = 'x';
      copy(from);
    } else if (c === '`') {
      index += 1;
      template();
      copy(from);
    } else if (c === '/' && (/^$|^[^\w$)\]x]/.test(last) || BEFORE_REGEX.has(last)) && (match = at(REGEX, code, index))) {
      index += match[0].length;
      last = 'x';
      copy(from);
    } else {
      index += 1;
      if ('([{'.includes(c)) open.push(c);
      else if (')]}'.includes(c) && open.pop() === '`') template();
      if (last === '' || c !== '}' || code[index - 1] === '}') last = c;
      copy(from);
    }
    fresh = false;
  }
  return out.join('');
}
