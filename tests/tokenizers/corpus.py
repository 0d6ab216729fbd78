"""The texts that real tokenizers are compared on.

Natural: English prose (Debian's bible-kjv-text) and the names of countries, languages, currencies
and scripts in some 60 languages (Debian's iso-codes). Made up: words of 20 scripts, code points,
random and awkward strings.
"""
import collections
import functools
import gettext
import subprocess
import unicodedata
from pathlib import Path
from typing import NamedTuple

import texts

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = ("de fr pl tr vi ru uk el ar fa ur he hi mr bn as ta te kn ml gu pa or si th lo km my "
             "ko ja zh_CN zh_TW ka hy am ti ne dz is cs hu fi ro sr ug mn kk cy eu lt mt sq az yo "
             "zu dv chr ps ckb").split()
LONGEST = 40_000  # letters of one language


class Corpus(NamedTuple):
    natural: list
    natural_bytes: int
    scripts: list  # with 1,000 letters or more in `natural`
    adversarial: int  # how many of `rest` are short awkward strings, random ones included
    rest: list


def unpack_debian(work, package):
    folder = work / "debian" / package
    if not folder.exists():
        debs = work / "debs"
        debs.mkdir(exist_ok=True)
        subprocess.run(["apt-get", "-qq", "download", package], cwd=debs, check=True)
        folder.mkdir(parents=True)
        deb = next(debs.glob(package + "_*.deb"))
        subprocess.run(["dpkg-deb", "-x", str(deb), str(folder)], check=True)
    return folder


def prose(work):
    file = work / "prose.txt"
    if not file.exists():
        subprocess.run(["bash", str(ROOT / "scripts" / "demo_text.sh"), str(file)], check=True)
    return file.read_text(encoding="utf-8")[:700_000]


@functools.cache
def names(work):
    """A text for each language: translated names, one a line."""
    base = unpack_debian(work, "iso-codes") / "usr/share/locale"
    result = []
    for language in LANGUAGES:
        lines = []
        for file in sorted((base / language / "LC_MESSAGES").glob("*.mo")):
            with open(file, "rb") as f:
                catalog = gettext.GNUTranslations(f)._catalog
            lines += [v for k, v in sorted(catalog.items(), key=str) if k and isinstance(v, str)]
        result.append("\n".join(lines)[:LONGEST])
    return result


def scripts_of(natural):
    """The first word of a letter's name says the script, near enough ("CJK", "DEVANAGARI")."""
    counts = collections.Counter()
    for c, n in collections.Counter("".join(natural)).items():
        if unicodedata.category(c)[0] == "L":
            counts[unicodedata.name(c, "?").split()[0]] += n
    return [s for s, n in counts.most_common() if n >= 1000 and s != "KATAKANA-HIRAGANA"]


def every_code_point():
    """All of the planes that hold letters, and every 64th of the others."""
    points = [chr(c) for c in range(0x110000)
              if not 0xd800 <= c < 0xe000 and (c < 0x32400 or c % 64 == 0)]
    for start in range(0, len(points), 4096):
        block = points[start:start + 4096]
        yield " ".join(block)
        yield "a" + "1".join(block[::3])


@functools.cache
def natural_texts(work):
    result = []
    for text in names(work):
        lines = text.split("\n")
        result += ["\n".join(lines[i:i + 40]) for i in range(0, len(lines), 40)]
    english = prose(work)
    result += [english[i:i + 5000] for i in range(0, len(english), 5000)]
    return result, sum(len(x.encode()) for x in result), scripts_of(result)


@functools.cache
def made_up(work):
    rng = texts.seeded(7)
    result = []
    for text in names(work):
        result.append(text[:5_000])  # at once, and without a place to split at
        result.append(text[:2_000].replace(" ", "").replace("\n", ""))
    result.append(prose(work).replace(" ", "").replace("\n", "")[:100_000])
    for script in texts.RANGES:
        words = texts.words(script, 1500, rng)
        result += [" ".join(words[i:i + 30]) for i in range(0, len(words), 30)]
        result.append("".join(words))
    return result + list(every_code_point())


def build(work, special):
    awkward = texts.adversarial(special) + texts.random_mix(4000, texts.seeded(9), longest=60)
    return Corpus(*natural_texts(work), len(awkward), awkward + made_up(work))
