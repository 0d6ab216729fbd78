"""Texts that tokenizers are compared on: sentences in 20 scripts, and what trips tokenizers up."""
import random

SENTENCES = {
    "Latin": "The quick brown fox can't jump over 13 lazy dogs; it's 3:45 already, we'll wait. "
             "Größe, façade, naïve, čeština, İstanbul, ﬁne, Ĳssel, ŉ.",
    "Cyrillic": "Доброе утро! Сегодня мы читаем книгу о природе и людях, 2024 год.",
    "Greek": "Καλημέρα κόσμε, σήμερα διαβάζουμε ένα βιβλίο για τη φύση.",
    "Arabic": "صباح الخير، نقرأ اليوم كتابًا عن الطبيعة والناس، سنة ٢٠٢٤.",
    "Hebrew": "בוקר טוב, היום אנחנו קוראים ספר על הטבע ועל האנשים.",
    "Devanagari": "सुप्रभात, आज हम प्रकृति और लोगों के बारे में एक किताब पढ़ते हैं, २०२४।",
    "Bengali": "সুপ্রভাত, আজ আমরা প্রকৃতি ও মানুষ নিয়ে একটি বই পড়ি।",
    "Tamil": "காலை வணக்கம், இன்று நாம் இயற்கை பற்றிய புத்தகம் படிக்கிறோம்.",
    "Telugu": "శుభోదయం, ఈ రోజు మనం ప్రకృతి గురించి పుస్తకం చదువుతాము.",
    "Kannada": "ಶುಭೋದಯ, ಇಂದು ನಾವು ಪ್ರಕೃತಿಯ ಬಗ್ಗೆ ಪುಸ್ತಕ ಓದುತ್ತೇವೆ.",
    "Malayalam": "സുപ്രഭാതം, ഇന്ന് നമ്മൾ പ്രകൃതിയെക്കുറിച്ച് ഒരു പുസ്തകം വായിക്കുന്നു.",
    "Gujarati": "સુપ્રભાત, આજે આપણે પ્રકૃતિ વિશે પુસ્તક વાંચીએ છીએ.",
    "Gurmukhi": "ਸ਼ੁਭ ਸਵੇਰ, ਅੱਜ ਅਸੀਂ ਕੁਦਰਤ ਬਾਰੇ ਇੱਕ ਕਿਤਾਬ ਪੜ੍ਹਦੇ ਹਾਂ.",
    "Thai": "สวัสดีตอนเช้า วันนี้เราอ่านหนังสือเกี่ยวกับธรรมชาติ ๒๕๖๗",
    "Hangul": "좋은 아침입니다, 오늘 우리는 자연에 관한 책을 읽습니다.",
    "Japanese": "おはようございます。今日は自然についての本を読みます。カタカナも。",
    "Han": "早上好,今天我们读一本关于自然和人的书,二〇二四年。",
    "Georgian": "დილა მშვიდობისა, დღეს ვკითხულობთ წიგნს ბუნების შესახებ.",
    "Armenian": "Բարի լույս, այսօր մենք գիրք ենք կարդում բնության մասին։",
    "Ethiopic": "እንደምን አደሩ፣ ዛሬ ስለ ተፈጥሮ መጽሐፍ እናነባለን።",
}

# Letters of each script, for made-up words.
RANGES = {
    "Latin": [(0x61, 0x7a), (0xe0, 0xf6), (0x100, 0x17f)], "Cyrillic": [(0x430, 0x45f)],
    "Greek": [(0x3b1, 0x3c9), (0x3ac, 0x3af)], "Arabic": [(0x621, 0x63a), (0x641, 0x652)],
    "Hebrew": [(0x5d0, 0x5ea), (0x5b0, 0x5b9)], "Devanagari": [(0x905, 0x939), (0x93e, 0x94d)],
    "Bengali": [(0x995, 0x9a8), (0x9be, 0x9c4)], "Tamil": [(0xb95, 0xb95), (0xbae, 0xbb5)],
    "Telugu": [(0xc15, 0xc28), (0xc3e, 0xc44)], "Kannada": [(0xc95, 0xca8), (0xcbe, 0xcc4)],
    "Malayalam": [(0xd15, 0xd28), (0xd3e, 0xd44)], "Gujarati": [(0xa95, 0xaa8), (0xabe, 0xac5)],
    "Gurmukhi": [(0xa15, 0xa28), (0xa3e, 0xa42)], "Thai": [(0xe01, 0xe2e), (0xe30, 0xe39)],
    "Hangul": [(0xac00, 0xd7a3), (0x1100, 0x1112)], "Japanese": [(0x3041, 0x3096), (0x30a1, 0x30fa)],
    "Han": [(0x4e00, 0x9fff), (0x20000, 0x20100)], "Georgian": [(0x10d0, 0x10f0)],
    "Armenian": [(0x561, 0x586)], "Ethiopic": [(0x1200, 0x1248)],
}


def words(script, count, rng):
    letters = [chr(c) for low, high in RANGES[script] for c in range(low, high + 1)]
    return ["".join(rng.choice(letters) for _ in range(rng.randint(1, 9))) for _ in range(count)]


def adversarial(specials=()):
    """Short strings; `specials` are special tokens of the tokenizer under test."""
    a = ["", " ", "  ", "   x", "x   ", "\n", "\n\n\n", "\r\n\r\n", " \n \n ", "a\r\nb\rc\n", "\t\ttab",
         "a\u00a0b\u2003c\u3000d", "a\u0085b\u180eb\u200bc\u2028d\u2029e\ufeff",
         "\x00a\x00\x01\x02\x1b\x7f\x1c\x1d\x1e\x1f", "don't DON'T it'S we'LL I'ſ x'd 'tis 'RE K",
         "1", "12", "123", "1234567890", "3.14159e-10", "١٢٣٤٥٦ ௧௨௩ ⅷ ½ ² ①②", "a1b22c333d4444",
         "!!!???...---===", "$100 + €200 = £300", "foo_bar-baz.qux/quux\\x", "<html>&amp;</html>",
         "#include <x.h>\n\tint main() {\n\t\treturn 0;\n\t}\n", "def f(x):\n    return x**2  # y\n",
         "👨‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇫🇷 ❤️", "e\u0301 é e\u0301\u0327 e\u0327\u0301 \u0301x a\u0301\u0301\u0301",
         "\u1100\u1161\u11a8 각 \uac00\u11a8", "ｆｕｌｌｗｉｄｔｈ １２３ ﷺ ﬀ ㍍ Å Å Ω",
         "abc עברית 123 العربية xyz\u202e reversed\u202c", "\u0378\U000e0080\U0010ffff\ue000\uffff\ufffe",
         "\U00011938\U0001e030\U0001fbf0\u0870\u1c89\U00010d4a", "ǅ ǈ ᾈ ß ẞ ς Σ İ ı", "a\u0300\u0315\u0300\u05ae\u0062",
         "▁", "▁▁ a▁b", " ▁x", "<0x41><0x0A>", "Ġ Ċ Ā", "\ufffd\ufffd", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         "ab" * 40, "x" + " " * 40 + "y", "\n" * 30 + "z", "0" * 20, ".  .   .    .", "a b  c   d    e",
         "hello world", "Hello, World!", " hello", "hello ", "\u0e01\u0e33\u0e4d\u0e32", "\u0f73\u0f71\u0f72",
         "\u0958\u0929\u09dc", "\u2126\u212b\u212a", "the\u200dthe", "x\u20dd", "\u3099か\u3099", "が か゛",
         "\U0001d400\U0001d7ce", "．．。、", "“quotes” ‘single’ «guillemets» — dash…"]
    for s in specials:
        a += [s, s + s, " " + s, s + " ", f"a {s} b", f"a{s}b", f"\n{s}\n", f"  {s}  x", f"{s[:-1]} {s}",
              s.upper(), f"é{s}e\u0301", f"{s}\u3000{s}", f"_{s}", f"{s}'s"]
    return a


def random_mix(count, rng, longest=24):
    """Strings of random code points, spaces, digits and marks."""
    pools = [lambda: chr(rng.randint(0x20, 0x7e)), lambda: chr(rng.randint(0xa0, 0x24f)),
             lambda: rng.choice(" \n\t\r  "), lambda: chr(rng.randint(0x300, 0x36f)),
             lambda: chr(rng.randint(0x370, 0x1fff)), lambda: chr(rng.randint(0x2000, 0x2fff)),
             lambda: chr(rng.randint(0x3000, 0xd7ff)), lambda: chr(rng.randint(0xe000, 0xffff)),
             lambda: chr(rng.randint(0x10000, 0x1ffff)), lambda: chr(rng.randint(0, 0x1f)),
             lambda: rng.choice("0123456789"), lambda: rng.choice("'sStTmMdDlLvVrReE")]
    out = []
    for _ in range(count):
        few = rng.sample(pools, rng.randint(1, 4))
        out.append("".join(rng.choice(few)() for _ in range(rng.randint(1, longest))))
    return out


def training_text(rng):
    lines = list(SENTENCES.values()) * 6
    for script in RANGES:
        vocabulary = words(script, 30, rng)
        for _ in range(12):
            lines.append(" ".join(rng.choice(vocabulary) for _ in range(12)))
    lines += ["hello world " * 3, "the the the and and of of in to it is was for on that with as"] * 20
    lines += ["    x = y + 1\n        return x\n"] * 5
    rng.shuffle(lines)
    return lines


def sample(rng):
    """A sentence and a few made-up words of every script."""
    return [s + " " + " ".join(words(script, 2, rng)) for script, s in SENTENCES.items()]


def seeded(seed):
    return random.Random(seed)
