/* snapshot.mjs - makes the start-up snapshot of the kernel, when cove is built: `node snapshot.mjs
 * SOURCES BLOB FITS`.
 *
 * A snapshot is V8's heap after loading the modules of the kernel and the Node modules that they
 * use; a process that starts from it neither compiles nor runs them again. It is valid for one
 * build of Node only, and Node itself notices a difference late or not at all. So FITS lists the
 * files with which it was made, and start.c compares them before it uses the snapshot.
 *
 * Node makes snapshots of one CommonJS script, so the modules are joined into one. All imports and
 * exports in these modules have a fixed form; any other form stops the build.
 *
 * If the snapshot cannot be made, or fails its test, it is omitted: BLOB is empty then, FITS gives
 * the reason, and the kernel starts from its source. */
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

/* each after the modules that it imports */
const ORDER = ['wire', 'show', 'complete', 'interrupt', 'modules', 'output', 'rewrite', 'kernel'];
const PLACE = 'file:///.cove/kernels/node/';
const TRY_MS = 120000;
const TRY_CODE = "[1 + 1, (await import('node:os')).EOL.length, require('fs').constants.R_OK, Math.floor(Math.random() * 1e12)].join(' ')";

const [sources, blob, fits] = process.argv.slice(2);

function required(what, from) {
  const source = from.startsWith('./') ? `ours.${path.basename(from, '.mjs')}` : `require('${from}')`;
  const match = /^(?:(\w+)(?:, )?)?(\{.*\})?$/.exec(what);
  if (!match) throw new Error(`unsupported form of import: ${what}`);
  return [match[1], match[2]?.replaceAll(' as ', ': ')].filter(Boolean).map((names) => `const ${names} = ${source};`).join(' ');
}

function joined(name) {
  const names = [];
  const text = fs.readFileSync(path.join(sources, `${name}.mjs`), 'utf8')
    .replace(/^import (.*) from '(.*)';$/gm, (_, what, from) => required(what, from))
    .replace(/^export ((?:async )?(?:function|class|const) (\w+))/gm, (_, rest, exported) => { names.push(exported); return rest; })
    .replaceAll('import.meta.url', `'${PLACE}kernel.mjs'`);
  if (/^(?:import|export)\b/m.test(text)) throw new Error(`${name}.mjs has an unsupported form of import or export`);
  return `ours.${name} = (function () {\n${text}\nreturn { ${names.join(', ')} };\n})();\n`;
}

/* The libraries that Node maps, and the modules that Debian's Node keeps in files of other
 * packages. */
function parts() {
  const libraries = process.report.getReport().sharedObjects.filter((file) => path.basename(file).startsWith('libnode'));
  const modules = ['cjs-module-lexer/lexer.js', 'cjs-module-lexer/dist/lexer.js', 'undici/undici-fetch.js', 'acorn/dist/acorn.js', 'acorn-walk/dist/walk.js']
    .map((file) => path.join('/usr/share/nodejs', file));
  return [process.execPath, ...libraries, ...modules.filter((file) => libraries.length && fs.existsSync(file))];
}

function described(bundle) {
  const files = parts().map((file) => {
    const { size, mtimeNs } = fs.statSync(file, { bigint: true });
    return `${size} ${mtimeNs} ${file}`;
  });
  return [`made ${createHash('sha256').update(bundle).digest('hex')}`, ...files, ''].join('\n');
}

/* Starts from the snapshot, runs a cell, and returns the value of Math.random() there. */
function tried() {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['--snapshot-blob', blob, 'kernel.mjs'], { stdio: ['ignore', 'ignore', 'pipe', 'pipe'], env: { PATH: '/usr/bin:/bin' } });
    const clock = setTimeout(() => child.kill('SIGKILL'), TRY_MS);
    let said = '';
    let complaints = '';
    child.stderr.on('data', (data) => { complaints += data; });
    child.stdio[3].on('error', () => {});
    child.stdio[3].on('data', (data) => {
      said += data;
      if (said.includes('"finished"')) child.stdio[3].end();
    });
    child.on('close', () => {
      clearTimeout(clock);
      const value = /"text\/plain":"'2 1 4 (\d+)'"/.exec(said);
      if (value) resolve(value[1]);
      else reject(new Error(`the test of the snapshot failed: ${(complaints || said || 'nothing').slice(0, 300)}`));
    });
    child.stdio[3].write(`${JSON.stringify({ op: 'execute', id: 'try', code: TRY_CODE })}\n`);
  });
}

async function make(bundle) {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'cove-snapshot-'));
  try {
    const script = path.join(dir, 'kernel.cjs');
    fs.writeFileSync(script, bundle);
    const made = spawnSync(process.execPath, ['--snapshot-blob', blob, '--build-snapshot', script], { encoding: 'utf8', timeout: TRY_MS, env: { PATH: '/usr/bin:/bin' } });
    if (made.status !== 0 || !fs.existsSync(blob) || !fs.statSync(blob).size) throw new Error(`node ${process.versions.node} cannot make a snapshot: ${made.stderr.slice(0, 300) || made.error?.message}`);
    if (await tried() === await tried()) throw new Error('two processes that start from it draw the same random numbers');
  } finally {
    fs.rmSync(dir, { recursive: true });
  }
}

const bundle = `'use strict';\nconst ours = {};\n${ORDER.map(joined).join('')}//# sourceURL=${PLACE}kernel.js\n`;
fs.rmSync(blob, { force: true });
try {
  await make(bundle);
  fs.writeFileSync(fits, described(bundle));
} catch (error) {
  const why = error.message.replace(/\s+/g, ' ').trim();
  process.stderr.write(`the Node kernel starts without a snapshot: ${why}\n`);
  fs.writeFileSync(blob, '');
  fs.writeFileSync(fits, `none ${why}\n`);
}
