"""The scratch project of `orchard demo`: a small program with tests, and the plan that extends it.

The program is real and so is the plan: the jobs write code, the tests import it, and one job needs
something from outside that is missing at first. Only `sh`, `git` and `python3` are used.
"""

import json

FILES: dict[str, str] = {
    ".gitignore": "__pycache__/\n",
    "README.md": "# textkit\n\nMeasures a text: `python3 -m textkit sample.txt`\n",
    "sample.txt": "the quick brown fox\njumps over the lazy dog\nand the dog sleeps on\n",
    "textkit/__init__.py": "",
    "textkit/__main__.py": '''"""python3 -m textkit FILE: print every measure of a text."""

import sys
from pathlib import Path

from textkit.report import report

if __name__ == "__main__":
    print(report(Path(sys.argv[1]).read_text()))
''',
    "textkit/report.py": '''"""A report is one line per measure."""


def report(text: str) -> str:
    return f"characters: {len(text)}"
''',
    "tests/__init__.py": "",
    "tests/test_report.py": """import unittest

from textkit.report import report


class ReportTest(unittest.TestCase):
    def test_characters_are_counted(self) -> None:
        self.assertIn("characters: 3", report("abc"))
""",
}

DRAFT = ("draft.txt", "a note that is not committed: orchard must not touch it\n")

PLAN = '''# The plan of `orchard demo`. The sleeps are there so that you can watch.
name: Teach textkit to measure
target: main
verify: python3 -m unittest discover -q
env:
  PYTHONDONTWRITEBYTECODE: "1"
  RARE_WORDS: {rare_words}
jobs:
  - id: interface
    name: Make room for measures
    work: |
      mkdir -p textkit/measures
      cat > textkit/measures/__init__.py <<'END'
      """Every module here is a measure: it has a function `measure(text)`."""
      END
      cat > textkit/report.py <<'END'
      """A report is one line per measure."""

      from importlib import import_module
      from pkgutil import iter_modules

      import textkit.measures


      def report(text: str) -> str:
          names = sorted(module.name for module in iter_modules(textkit.measures.__path__))
          lines = [f"characters: {{len(text)}}"]
          for name in names:
              lines.append(f"{{name}}: {{import_module('textkit.measures.' + name).measure(text)}}")
          return "\\n".join(lines)
      END
    postchecks: python3 -m unittest discover -q

groups:
  - name: measures
    jobs:
      - id: words
        name: Count words
        needs: [interface]
        work: |
          sleep 1
          cat > textkit/measures/words.py <<'END'
          def measure(text: str) -> int:
              return len(text.split())
          END
        postchecks: python3 -c 'from textkit.measures.words import measure; assert measure("a b  c") == 3'
      - id: lines
        name: Count lines
        needs: [interface]
        work: |
          sleep 1
          cat > textkit/measures/lines.py <<'END'
          def measure(text: str) -> int:
              return len(text.splitlines())
          END
        postchecks: python3 -c 'from textkit.measures.lines import measure; assert measure("a\\nb") == 2'
      - id: longest
        name: Find the longest word
        needs: [interface]
        work: |
          sleep 2
          cat > textkit/measures/longest.py <<'END'
          def measure(text: str) -> str:
              return max(text.split(), key=len, default="")
          END
      - id: rare
        name: Count rare words
        needs: [interface]
        # The list is not there at first: this job fails, no agent is asked to heal it, and what needs it is blocked.
        heal: false
        prechecks: test -e "$RARE_WORDS" || {{ echo "the list of rare words is missing"; exit 1; }}
        work: |
          cp "$RARE_WORDS" textkit/rare.txt
          cat > textkit/measures/rare.py <<'END'
          from pathlib import Path

          RARE = set((Path(__file__).parent.parent / "rare.txt").read_text().split())


          def measure(text: str) -> int:
              return sum(word in RARE for word in text.split())
          END

  - name: tests
    jobs:
      - id: counting
        name: Test the counting
        needs: [measures/words, measures/lines]
        work: |
          sleep 1
          cat > tests/test_counting.py <<'END'
          import unittest

          from textkit.report import report


          class CountingTest(unittest.TestCase):
              def test_words_and_lines_are_counted(self) -> None:
                  self.assertIn("lines: 2\\n", report("one two\\nthree") + "\\n")
                  self.assertIn("words: 3\\n", report("one two\\nthree") + "\\n")
          END
        postchecks: python3 -m unittest -q tests.test_counting
      - id: clean
        name: Parse every file
        needs: [measures/words, measures/lines, measures/longest]
        expects_no_changes: true
        work: python3 -c 'import ast, pathlib; [ast.parse(p.read_text()) for p in pathlib.Path(".").rglob("*.py")]'

  - name: docs
    jobs:
      - id: usage
        name: Document all measures
        needs: [tests/clean, measures/rare]
        work: |
          mkdir -p docs
          (echo "# What textkit says"; echo; python3 -m textkit sample.txt | sed 's/^/    /') > docs/usage.md
      - id: changes
        name: List the changes
        needs: [interface]
        work: printf '%s\\n' '# Changes' '' '- textkit measures more than characters' > CHANGES.md
'''

RARE_WORDS = "quick lazy jumps\n"


def plan_text(rare_words: str) -> str:
    """The plan file, which is told where the list of rare words will be."""
    # A JSON string is a YAML string, whatever the folder is called.
    return PLAN.format(rare_words=json.dumps(rare_words))
