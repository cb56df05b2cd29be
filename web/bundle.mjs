// Bundles the dashboard into the folder that the daemon serves: one page, and assets that are named after their content.
import { build } from "esbuild";
import { gzipSync } from "node:zlib";
import { existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
const PLACE = join(HERE, "..", "src", "orchard", "surfaces", "http", "pages", "dashboard");
const MOST_BYTES = 250 * 1024; // of everything, compressed

const fresh = `${PLACE}.new`;
rmSync(fresh, { recursive: true, force: true });
mkdirSync(fresh, { recursive: true });
const made = await build({
  absWorkingDir: HERE,
  entryPoints: { page: "src/main.tsx" },
  outdir: join(fresh, "assets"),
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  bundle: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  minify: true,
  legalComments: "none", // all licences are in one file, below
  define: { "process.env.NODE_ENV": '"production"' },
  metafile: true,
  logLevel: "warning",
});

const names = Object.keys(made.metafile.outputs).map((name) => basename(name));
const script = Object.entries(made.metafile.outputs).find(([, one]) => one.entryPoint === "src/main.tsx");
const style = script?.[1].cssBundle;
if (!script || !style) throw new Error("there is no script, or no style");
const page = readFileSync(join(HERE, "index.html"), "utf8")
  .replace("%SCRIPT%", `/assets/${basename(script[0])}`)
  .replace("%STYLE%", `/assets/${basename(style)}`);
writeFileSync(join(fresh, "index.html"), page);
writeFileSync(join(fresh, "assets", "licenses.txt"), licenses(Object.keys(made.metafile.inputs)));

const size = names.reduce((sum, name) => sum + gzipSync(readFileSync(join(fresh, "assets", name))).length, 0);
if (size > MOST_BYTES) throw new Error(`the bundle has ${size} bytes compressed, and may have ${MOST_BYTES}`);
rmSync(PLACE, { recursive: true, force: true });
renameSync(fresh, PLACE);
console.log(`${names.length} files, ${Math.round(size / 1024)} KB compressed`);

// The licence of every package whose code is in the bundle.
function licenses(inputs) {
  const folders = new Set();
  for (const input of inputs) {
    const found = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (found) folders.add(found[1]);
  }
  const texts = [...folders].sort().map((folder) => {
    const about = JSON.parse(readFileSync(join(HERE, folder, "package.json"), "utf8"));
    const file = readdirSync(join(HERE, folder)).find((name) => /^licen[cs]e/i.test(name));
    const text = file && existsSync(join(HERE, folder, file)) ? readFileSync(join(HERE, folder, file), "utf8") : "";
    return `${about.name} ${about.version} (${about.license})\n\n${text.trim()}\n`;
  });
  return texts.join(`\n${"-".repeat(80)}\n\n`);
}
