#!/usr/bin/env python3
"""Writes a small instruction file about the text of the demo, as prompt and completion.

    tests/finetune/make_tasks.py [--text build/demo/kjv.txt] [--out build/demo/tasks]

Three tasks: the book that a verse is in, the verse that follows, the testament. OUT/train.jsonl has
594 examples, nine of each book; OUT/held_out.jsonl 132, two of each book, about verses that no
prompt of train.jsonl names. The same text and seed give the same files.
"""
import argparse
import json
import random
import re
from pathlib import Path

BOOKS = """Ge Genesis, Exo Exodus, Lev Leviticus, Num Numbers, Deu Deuteronomy, Josh Joshua,
Jdgs Judges, Ruth Ruth, 1Sm 1 Samuel, 2Sm 2 Samuel, 1Ki 1 Kings, 2Ki 2 Kings, 1Chr 1 Chronicles,
2Chr 2 Chronicles, Ezra Ezra, Neh Nehemiah, Est Esther, Job Job, Psa Psalms, Prv Proverbs,
Eccl Ecclesiastes, SSol Song of Solomon, Isa Isaiah, Jer Jeremiah, Lam Lamentations, Eze Ezekiel,
Dan Daniel, Hos Hosea, Joel Joel, Amos Amos, Obad Obadiah, Jonah Jonah, Mic Micah, Nahum Nahum,
Hab Habakkuk, Zep Zephaniah, Hag Haggai, Zec Zechariah, Mal Malachi, Mat Matthew, Mark Mark,
Luke Luke, John John, Acts Acts, Rom Romans, 1Cor 1 Corinthians, 2Cor 2 Corinthians, Gal Galatians,
Eph Ephesians, Phi Philippians, Col Colossians, 1Th 1 Thessalonians, 2Th 2 Thessalonians,
1Tim 1 Timothy, 2Tim 2 Timothy, Titus Titus, Phmn Philemon, Heb Hebrews, Jas James, 1Pet 1 Peter,
2Pet 2 Peter, 1Jn 1 John, 2Jn 2 John, 3Jn 3 John, Jude Jude, Rev Revelation"""
NAMES = dict(book.split(None, 1) for book in BOOKS.replace("\n", " ").split(", "))
FIRST_OF_THE_NEW = "Mat"
TRAINING, HELD_OUT = 9, 2  # of each book


def verses_by_book(text):
    """Of each book, the verses that another one of the same chapter follows."""
    places = re.findall(r"^(\d?[A-Za-z]+)(\d+):(\d+) ", text, re.MULTILINE)
    known = set(places)
    books = {}
    for book, chapter, verse in places:
        after = str(int(verse) + 1)
        if (book, chapter, after) in known:
            books.setdefault(book, []).append((f"{book}{chapter}:{verse}",
                                               f"{book}{chapter}:{after}"))
    missing = set(NAMES) ^ set(books)
    if missing:
        raise SystemExit(f"make_tasks.py: books that are not both in the text and known: {missing}")
    return books


def example(task, book, verse, after, new):
    prompt, answer = [(f"Which book is {verse} in? ", NAMES[book]),
                      (f"Which verse comes after {verse}? ", after),
                      (f"Is {verse} in the Old or the New Testament? ", "New" if new else "Old")][task]
    return {"prompt": prompt, "completion": answer + "\n"}


def tasks(text, draw):
    training, held_out = [], []
    new = False
    for number, (book, verses) in enumerate(verses_by_book(text).items()):
        new = new or book == FIRST_OF_THE_NEW
        draw.shuffle(verses)
        for i in range(HELD_OUT):
            held_out.append(example((number + i) % 3, book, *verses[i], new))
        seen = verses[HELD_OUT:]
        for i in range(TRAINING):
            training.append(example(i % 3, book, *seen[i % len(seen)], new))
    draw.shuffle(training)
    return training, held_out


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, default=Path("build/demo/kjv.txt"))
    parser.add_argument("--out", type=Path, default=Path("build/demo/tasks"))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    training, held_out = tasks(args.text.read_text(), random.Random(args.seed))
    args.out.mkdir(parents=True, exist_ok=True)
    for name, examples in (("train", training), ("held_out", held_out)):
        path = args.out / f"{name}.jsonl"
        path.write_text("".join(json.dumps(e) + "\n" for e in examples))
        print(f"{path}: {len(examples)} examples")


if __name__ == "__main__":
    main()
