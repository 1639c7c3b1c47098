// build.mjs: bundles src/ into dist/viewer.html: one page without data, where vmpool html puts a snapshot and a log.
//
// usage: node build.mjs [--check]      (after npm ci)
//
// --check writes nothing and fails where dist/ isn't what the sources give.
import {createHash} from 'node:crypto';
import {mkdirSync, readFileSync, readdirSync, writeFileSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {build} from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const read = (...path) => readFileSync(join(here, ...path), 'utf8');

async function bundle(entry) {
  const result = await build({
    entryPoints: [join(here, 'src', entry)], bundle: true, minify: true, write: false, format: 'esm', target: ['chrome110', 'firefox113', 'safari16.4'],
    legalComments: 'none', charset: 'utf8', absWorkingDir: here, metafile: true,
  });
  return {text: result.outputFiles[0].text.trim(), inputs: Object.keys(result.metafile.inputs)};
}

// Every package that a bundle took something from, with its licence.
function notices(inputs) {
  const packages = [...new Set(inputs.map((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]).filter(Boolean))].sort();
  return packages.map((name) => {
    const folder = join(here, 'node_modules', name);
    const {version, license, homepage} = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const file = readdirSync(folder).find((one) => /^licen[sc]e/i.test(one));
    if (!file) throw new Error(`${name} has no licence file`);
    return `${name} ${version} (${license})${homepage ? `\n${homepage}` : ''}\n\n${readFileSync(join(folder, file), 'utf8').trim()}\n`;
  }).join(`\n${'-'.repeat(80)}\n\n`);
}

const hash = (text) => `sha256-${createHash('sha256').update(text).digest('base64')}`;

const script = await bundle('main.js');
const style = await bundle('style.css');
if (/<\/script|<!--/i.test(script.text)) throw new Error('the script holds what would end it: </script or <!--');
const text = notices([...script.inputs, ...style.inputs]);
const values = {
  SCRIPT_HASH: hash(script.text), STYLE_HASH: hash(style.text), STYLE: style.text, SCRIPT: script.text,
  NOTICES: text.replace(/</g, '‹'),
};
const page = read('src', 'page.html').replace(/@([A-Z_]+)@/g, (all, name) => values[name] ?? all);
// The header changes whenever the page does: it makes compilers, and what caches their work, take the new page.
const header = `// Made by tools/viewer/build.mjs.\n#define VIEWER_SHA256 "${createHash('sha256').update(page).digest('hex')}"\n`;
const outputs = {'viewer.html': page, 'viewer.h': header, 'NOTICES.txt': text};

let stale = false;
for (const [name, content] of Object.entries(outputs)) {
  const path = join(here, 'dist', name);
  if (process.argv.includes('--check')) {
    let old = '';
    try {
      old = readFileSync(path, 'utf8');
    } catch {
      // missing: as stale as wrong
    }
    if (old === content) continue;
    stale = true;
    console.error(`tools/viewer/dist/${name} is not what the sources give: run npm ci && npm run build in tools/viewer, and commit dist/`);
  } else {
    mkdirSync(dirname(path), {recursive: true});
    writeFileSync(path, content);
    console.log(`${name}: ${content.length} characters`);
  }
}
process.exit(stale ? 1 : 0);
