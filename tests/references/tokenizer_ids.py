#!/usr/bin/env python3
"""Compares bespoke's token ids with those of other implementations, on generated strings.

    pip install gguf xllamacpp tokenizers regex sentencepiece numpy
    tests/references/tokenizer_ids.py --encoder PROGRAM VOCAB.gguf...

VOCAB.gguf is any GGUF file with a tokenizer; weights are not needed. llama.cpp's vocabularies come with its sources,
for example inside the source package of `llama-cpp-python` (`pip download --no-binary :all: --no-deps
llama-cpp-python`, then `vendor/llama.cpp/models/ggml-vocab-*.gguf`). PROGRAM is the example `encode` of the package
`bespoke` (`cargo build --release -p bespoke --example encode`).

References, all of which run on the same strings:

- llama.cpp: its C functions in the shared library of the package `xllamacpp`, with `vocab_only`.
- tokenizers (byte-level BPE): Hugging Face's `tokenizers` with the file's vocabulary and merges. The text is split here
  by the module `regex`, with the expressions of the published tokenizer.json files, and mapped to bytes here.
- sentencepiece (`llama`): a SentencePiece model with the file's tokens, types and scores.

Strings are generated from a seed: many scripts, emoji, code, white space, control characters, combining marks, long
runs, special tokens, random code points. Next to each file, FILE.inp and FILE.out (llama.cpp's own test strings and
ids) are compared if they exist. The result is one line for each file and reference; differences are listed.
"""
import argparse
import ctypes
import json
import mmap
import os
import random
import struct
import subprocess
import sys
import unicodedata
from pathlib import Path

# This file must not hide the package of the same name.
sys.path = [folder for folder in sys.path if Path(folder or ".").resolve() != Path(__file__).resolve().parent]

import gguf

CONTROL, USER_DEFINED, UNUSED, BYTE, UNKNOWN = 3, 4, 5, 6, 2

ENDS = {"</s>", "<|endoftext|>", "<|im_end|>", "<|end|>", "<eos>", "<end_of_turn>"}

SENTENCES = """The quick brown fox jumps over the lazy dog, doesn't it?
I'VE they'll WE'RE you'd it's 'tis rock'n'roll O'Neill's
Zażółć gęślą jaźń — naïve façade, Ærøskøbing, Þingvellir, İstanbul'da
Съешь же ещё этих мягких французских булок, да выпей чаю. Ёлка!
Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία· Ἀθῆναι, ΐ ΰ
עטלף אבק נס דרך מזגן שהתפוצץ כי חם, שָׁלוֹם
نصٌّ حكيمٌ لهُ سِرٌّ قاطِعٌ وَذُو شَأنٍ عَظيمٍ ۱۲۳ ١٢٣
ऋषियों को सताने वाले दुष्ट राक्षसों का सर्वनाश १२३४
আমার সোনার বাংলা, আমি তোমায় ভালোবাসি ২০২৪
யாதும் ஊரே யாவரும் கேளிர் തിരുവനന്തപുരം ಕನ್ನಡ తెలుగు
เป็นมนุษย์สุดประเสริฐเลิศคุณค่า ๑๒๓ ພາສາລາວ ភាសាខ្មែរ မြန်မာ
日本語のテキスト、カタカナ、漢字と「かぎ括弧」。１２３ｶﾀｶﾅ
中文字符，標點符號；繁體與简体。㐀㐁龥龦〇々
한국어 텍스트입니다. 조선글 ㄱㄴㄷ 각
ქართული ანბანი ՀԱՅԵՐԵՆ այբուբեն ኣማርኛ ᏣᎳᎩ ᠮᠣᠩᠭᠣᠯ བོད་ཡིག ⵜⵉⴼⵉⵏⴰⵖ
𝒜𝓫𝔠 𝟙𝟚𝟛 ①②③ Ⅳ ⅷ ½ ¼ x² H₂O ™ © € £ ¥ ₿ № ‰ ∑∫√∞≠ ←→⇒
🦀🚀 👨‍👩‍👧‍👦 🇩🇪🇯🇵 👍🏽 ❤️ ☕️ 🏳️‍🌈 🧑🏿‍🔬 e\u0301a\u0308o\u0302 Z̴̢a̷l̵g̶o̸
fn main() { let x: Vec<u8> = vec![0xFF; 1_000]; println!("{x:?}"); }
def f(a, *b, **c):\n    return {k: v for k, v in c.items() if k != "__x__"}
for (int i = 0; i < n; ++i) { a[i] += b[i] * 3.14e-10f; } // TODO: fix
SELECT * FROM "t" WHERE id >= 10 AND name LIKE '%foo_bar%';
<html><body class='a b'>&nbsp;<br/></body></html> https://example.com/a?b=c&d=%20#e user@example.org
\\begin{equation} \\frac{a}{b} = \\alpha_{i}^{2} \\end{equation} $x$ \\\\ \\n
C:\\Program Files\\x.exe /usr/local/bin ../../etc ~/.config --flag=value -abc +1 -1 1,234,567.89
camelCaseWord PascalCaseWord SCREAMING_SNAKE kebab-case XMLHttpRequest iPhone ÉcoleÀParis ÇaVa ñandúÑ
=== --- *** ... ??? !!! ,,, ;;; ((())) [[[]]] {{{}}} <<<>>> \"\"\" ''' ``` ~~~ @@@ ### $$$ %%% ^^^ &&& ||| \\\\\\
1 12 123 1234 12345 123456 1234567 12345678901234567890 3.14159 1e10 0b1010 0o777 0xDEADBEEF 1abc abc1 1_2
\u00e9 \u0065\u0301 \u1e69 \u0073\u0323\u0307 \ufb01 \u212b \u2126 \u017f \u0130 \u0131 \u00df \u1e9e""".split("\n")

SPACES = [" ", "  ", "   ", "    ", "\t", "\t\t", "\n", "\n\n", "\n\n\n", "\r\n", "\r", " \n", "\n ", " \t ",
          "\u00a0", "\u3000", "\u2003", "\u2028", "\u2029", "\u000b", "\u000c", "\u1680", "\u202f", "\u205f"]
ODD = ["\u200b", "\u200d", "\u200e", "\ufeff", "\u00ad", "\u2060", "\ufffd", "\ufffe", "\u0000", "\u0001", "\u0004",
       "\u001b", "\u007f", "\u0080", "\u009f", "\u0378", "\ue000", "\U000e0001", "\U0010ffff", "\U0001f9ff", "\u0300",
       "\u20dd", "\ufe0f", "\u06dd", "▁", "▁▁", "Ġ", "Ċ", "<0x0A>", "<0x41>", "<s>", "</s>", "<unk>", "<|x|>"]
RUNS = [" ", "\n", "\t", "a", "A", "1", ".", "!", "=", "-", "é", "ß", "日", "한", "ก", "🦀", "\u0301", " a", "ab", "\r\n",
        " \n", "x ", "1,", "\u00a0", "\u3000", "क्", "\u0000", "_", "'s", "é ", "字\n"]


def strings(count, special, seed):
    """`count` strings. `special` are spellings of the vocabulary's special tokens."""
    rng = random.Random(seed)
    fixed = ["", *SENTENCES, *SPACES, *ODD]
    fixed += [run * n for run in RUNS for n in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 257)]
    fixed += [space + word for space in SPACES for word in ("a", "Word", "1", "!", "日")]
    fixed += [word + space for space in SPACES for word in ("a", "1", "!")]
    fixed += [unit * 3000 for unit in (" ", "a", "1", "!", "\n", "日", "ab ", "🦀")]
    blocks = [(0x20, 0x7f), (0x80, 0x250), (0x250, 0x590), (0x590, 0x900), (0x900, 0x1100), (0x1100, 0x2000),
              (0x2000, 0x2c00), (0x2c00, 0x3400), (0x3400, 0xa000), (0xa000, 0xd800), (0xe000, 0x10000),
              (0x10000, 0x12000), (0x1d000, 0x1fb00), (0x20000, 0x20100), (0xe0000, 0xe0100)]
    words = [word for sentence in SENTENCES for word in sentence.split(" ")]

    def part():
        kind = rng.random()
        if kind < 0.45:
            return rng.choice(words)
        if kind < 0.6:
            return rng.choice(SPACES)
        if kind < 0.68:
            return rng.choice(ODD)
        if kind < 0.74:
            return rng.choice(RUNS) * rng.randint(1, 12)
        if kind < 0.8:
            return "".join(rng.choice(sentence) for sentence in [rng.choice(SENTENCES)] for _ in range(rng.randint(1, 6)))
        if kind < 0.86:
            low, high = rng.choice(blocks)
            return "".join(chr(rng.randrange(low, high)) for _ in range(rng.randint(1, 6)))
        if kind < 0.9:
            return str(rng.randrange(10 ** rng.randint(1, 12)))
        if kind < 0.94 and special:
            return rng.choice(special)
        return rng.choice(SENTENCES)

    texts = list(fixed)
    while len(texts) < count:
        glue = rng.choice([" ", "", "", "\n"])
        texts.append(glue.join(part() for _ in range(rng.randint(1, 12))))
    return texts


def metadata(path):
    """The metadata of a GGUF file. (The package `gguf` takes half a minute for half a million strings.)"""
    sizes = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    at = 24

    def string():
        nonlocal at
        end = at + 8 + int.from_bytes(data[at:at + 8], "little")
        found = data[at + 8:end].decode()
        at = end
        return found

    def numbers(kind, count):
        nonlocal at
        found = struct.unpack_from(f"<{count}{sizes[kind]}", data, at)
        at += struct.calcsize(f"<{count}{sizes[kind]}")
        return found

    def value(kind):
        if kind == 8:
            return string()
        if kind == 9:
            element, count = numbers(4, 1)[0], numbers(10, 1)[0]
            return [string() for _ in range(count)] if element == 8 else list(numbers(element, count))
        return numbers(kind, 1)[0]

    return {string(): value(numbers(4, 1)[0]) for _ in range(int.from_bytes(data[16:24], "little"))}


class Vocabulary:
    """The `tokenizer.ggml` keys of a file."""

    def __init__(self, path):
        get = metadata(path).get
        self.model = get("tokenizer.ggml.model")
        self.pre = get("tokenizer.ggml.pre")
        self.tokens = get("tokenizer.ggml.tokens", [])
        self.types = get("tokenizer.ggml.token_type") or [1] * len(self.tokens)
        # llama.cpp takes these names for control tokens, whatever the type; we do if it is user-defined.
        self.types = [CONTROL if ty == USER_DEFINED and (token in ENDS or "fim" in token) else ty
                      for token, ty in zip(self.tokens, self.types)]
        self.merges = get("tokenizer.ggml.merges")
        self.scores = get("tokenizer.ggml.scores")
        self.unknown = get("tokenizer.ggml.unknown_token_id")
        self.space_prefix = get("tokenizer.ggml.add_space_prefix", True)

    def ambiguous(self):
        """Names of ends of text that the file declares to be text: llama.cpp takes them for control tokens, we do not,
        and neither does the published tokenizer."""
        return {token for token, ty in zip(self.tokens, self.types) if ty == 1 and token in ENDS}

    def special(self):
        return [t for t, ty in zip(self.tokens, self.types) if ty in (CONTROL, USER_DEFINED) and t]


class LlamaCpp:
    """llama.cpp's own tokenizer, through the C functions that the package's library exports."""

    name = "llama.cpp"

    class Params(ctypes.Structure):
        # struct llama_model_params of llama.h; only `vocab_only` and `n_gpu_layers` are set.
        _fields_ = [
            ("devices", ctypes.c_void_p), ("overrides", ctypes.c_void_p), ("n_gpu_layers", ctypes.c_int32),
            ("split_mode", ctypes.c_int32), ("load_mode", ctypes.c_int32), ("lazy_mode", ctypes.c_int32),
            ("main_gpu", ctypes.c_int32), ("tensor_split", ctypes.c_void_p), ("progress", ctypes.c_void_p),
            ("progress_data", ctypes.c_void_p), ("kv_overrides", ctypes.c_void_p), ("vocab_only", ctypes.c_bool),
            ("check_tensors", ctypes.c_bool), ("use_extra_bufts", ctypes.c_bool), ("no_host", ctypes.c_bool),
            ("no_alloc", ctypes.c_bool), ("load_mtp", ctypes.c_bool),
        ]

    LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)

    def __init__(self, path, vocabulary):
        import xllamacpp
        folder = Path(xllamacpp.__file__).parent
        self.lib = ctypes.CDLL(str(next(folder.glob("*.so"))))
        self.log = self.LOG(lambda level, text, data: None)
        self.lib.llama_log_set(self.log, None)
        self.lib.llama_model_default_params.restype = self.Params
        self.lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, self.Params]
        self.lib.llama_model_load_from_file.restype = ctypes.c_void_p
        self.lib.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
        self.lib.llama_model_get_vocab.restype = ctypes.c_void_p
        self.lib.llama_tokenize.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_void_p,
                                            ctypes.c_int32, ctypes.c_bool, ctypes.c_bool]
        params = self.lib.llama_model_default_params()
        params.vocab_only = True
        params.n_gpu_layers = 0
        model = self.lib.llama_model_load_from_file(os.fsencode(path), params)
        if not model:
            raise ValueError("llama.cpp does not load the file")
        self.vocab = self.lib.llama_model_get_vocab(model)

    def encode(self, text, special):
        data = text.encode()
        room = len(data) + 16
        ids = (ctypes.c_int32 * room)()
        count = self.lib.llama_tokenize(self.vocab, data, len(data), ids, room, False, special)
        assert count >= 0, (text, count)
        return list(ids[:count])


# Splitting of the published tokenizer.json files, written for the module `regex`.
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACE
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
         r"|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACE)
O200K = CASED % (CONTRACTION + "?", CONTRACTION + "?", "{1,3}")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+")
DEEPSEEK3 = DEEPSEEK + r"[\r\n]*|" + SPACE
CJK = "[一-龥぀-ゟ゠-ヿ]+"
BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
LINES = r"[^\n]+|[\n]+"
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]*"
        r"[[\p{Ll}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]+" + CONTRACTION + r"?|[^\r\n\p{L}\p{N}]?"
        r"[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]+[[\p{Ll}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]*" + CONTRACTION
        + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACE)
# The letters of DeepSeek-LLM's list: those with upper and lower case, in the version of Unicode of its authors.
CASED_LETTERS = ("A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕ"
                 "\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
                 "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
                 "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d"
                 "\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
                 "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
                 "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
                 "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
                 "\U000118a0-\U000118df\U0001e900-\U0001e943")
SPLITS = {
    "gpt-2": [GPT2],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "llama-bpe": [WORDS % "{1,3}"],
    "dbrx": [WORDS % "{1,3}"],
    "glm4": [WORDS % "{1,3}"],
    "qwen2": [WORDS % ""],
    "qwen35": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACE],
    "laguna": [LINES, WORDS % ""],
    "ufakzeka": [(WORDS % "").removeprefix(CONTRACTION + "|")],
    "smollm": [r"\p{N}", GPT2],
    "deepseek-llm": [r"[\r\n]", r"\s?[" + CASED_LETTERS + "]+", r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+\Z",
                     "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}+"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", CJK, DEEPSEEK3],
    "spark2_5": [r"\p{N}{1,3}", CJK, DEEPSEEK + r"|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"],
    "afmoe": [r"\p{Nd}{1,3}(?=(?:\p{Nd}{3})*(?!\p{Nd}))",
              "[一-鿿㐀-䶿豈-\ufaff぀-ゟ゠-ヿ･-ﾟ⼀-\u2fdfเ-๿\u0e80-\u0effក-៿က-႟ꩠ-ꩿꧠ-\ua9ff가-\ud7afᄀ-ᇿ]+",
              DEEPSEEK3],
    "youtu": ["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" + CJK, CASED % (CONTRACTION + "?", CONTRACTION + "?", "")],
    "tekken": [CASED % ("", "", "")],
    "gpt-4o": [O200K],
    "granite-embed-multi-97m": [O200K],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", O200K],
    "kimi-k2": [KIMI],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
                   r"|\s+(?!\S)|\s+"],
    "seed-coder": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + SPACE],
    "exaone-moe": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
                   r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "minicpm5": [r"\p{N}{1,3}", WORDS % "+"],
    "jais-2": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
               + "|".join(rf"\s{{{size}}}(?!\S)" for size in (512, 256, 128, 64, 32, 16, 8, 4))
               + r"|\s{1,2}(?!\S)|\s{1}"],
    "bloom": [BLOOM],
    "viking": [BLOOM, r"\p{N}"],
    "chameleon": ["<sentinel:[0-9]+>", "(?:IMGIMG)(?:(?:A|B|C|D|E|F|G|H|I){1,4})Z", r"(?:[\t\n]|    |  )", r"\p{N}",
                  r"[\p{P}!-/:-@\[-`{-~]", GPT2],
}
# Other names for the same.
SAME = {"mpt": "gpt-2", "olmo": "gpt-2", "starcoder": "smollm", "refact": "smollm", "command-r": "smollm",
        "exaone": "smollm", "smaug-bpe": "dbrx"}
# llama.cpp writes these expressions without classes of case and marks, or with code of its own that differs.
APPROXIMATED = {"afmoe", "deepseek-coder", "deepseek-llm", "gpt-4o",
                "granite-embed-multi-97m", "kimi-k2", "superbpe", "tekken", "tiny_aya", "youtu"}
IGNORE_MERGES = {"llama-bpe", "tekken", "glm4", "youtu", "granite-embed-multi-97m", "minicpm5"}


class Tokenizers:
    """Hugging Face's BPE over pieces split here."""

    name = "tokenizers"

    def __init__(self, path, vocabulary):
        import regex
        from tokenizers.models import BPE
        if vocabulary.model != "gpt2":
            raise ValueError("not byte-level BPE")
        pre = vocabulary.pre or "default"
        pre = SAME.get(pre, pre)
        if pre not in SPLITS:
            raise ValueError(f"no splitting written for {pre}")
        self.steps = [regex.compile(step, regex.V1) for step in SPLITS[pre]]
        vocab = {token: i for i, token in reversed(list(enumerate(vocabulary.tokens)))}
        merges = []
        for merge in dict.fromkeys(vocabulary.merges):
            left, _, right = merge.partition(" ")
            merges.append((left, right))
        self.model = BPE(vocab=vocab, merges=merges, ignore_merges=pre in IGNORE_MERGES, cache_capacity=0)
        self.special = {}
        for kinds in ((USER_DEFINED,), (USER_DEFINED, CONTROL, UNKNOWN)):
            chosen = [t for t, ty in zip(vocabulary.tokens, vocabulary.types) if ty in kinds and t]
            chosen.sort(key=len, reverse=True)
            self.special[len(kinds) > 1] = regex.compile("|".join(map(regex.escape, chosen))) if chosen else None
        self.vocab = vocab
        printable = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
        self.alphabet = {byte: chr(byte) for byte in printable}
        for byte in range(256):
            self.alphabet.setdefault(byte, chr(256 + len(self.alphabet) - len(printable)))

    def split(self, text):
        pieces = [text]
        for step in self.steps:
            parts = []
            for piece in pieces:
                at = 0
                for match in step.finditer(piece):
                    if match.start() > at:
                        parts.append(piece[at:match.start()])
                    if match.end() > match.start():
                        parts.append(match.group())
                    at = match.end()
                if at < len(piece):
                    parts.append(piece[at:])
            pieces = parts
        return pieces

    def encode(self, text, special):
        finder = self.special[special]
        at, ids = 0, []
        for match in finder.finditer(text) if finder else ():
            ids += self.plain(text[at:match.start()])
            ids.append(self.vocab[match.group()])
            at = match.end()
        return ids + self.plain(text[at:])

    def plain(self, text):
        ids = []
        for piece in self.split(text) if text else ():
            # A byte without a token separates: nothing is merged across it.
            part = ""
            for byte in piece.encode():
                if self.alphabet[byte] in self.vocab:
                    part += self.alphabet[byte]
                    continue
                ids += [token.id for token in self.model.tokenize(part)]
                part = ""
            ids += [token.id for token in self.model.tokenize(part)]
        return ids


def field(number, value):
    """A field of a protocol buffer: an integer, a float or bytes."""
    def varint(n):
        return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


class SentencePiece:
    """SentencePiece with the file's tokens, types and scores."""

    name = "sentencepiece"

    def __init__(self, path, vocabulary):
        import sentencepiece
        if vocabulary.model != "llama":
            raise ValueError("not SentencePiece")
        # sentencepiece_model.proto: the numbers are those of its fields; types are numbered as in GGUF.
        first_unknown = vocabulary.types.index(UNKNOWN)
        unknown = vocabulary.tokens[first_unknown]
        # SentencePiece allows one unknown token.
        kinds = [CONTROL if kind == UNKNOWN and i != first_unknown else kind
                 for i, kind in enumerate(vocabulary.types)]
        spelled = lambda token, kind: token.replace(" ", "▁") if kind == USER_DEFINED else token
        model = b"".join(
            field(1, field(1, spelled(token, kind).encode()) + field(2, float(score)) + field(3, kind))
            for token, score, kind in zip(vocabulary.tokens, vocabulary.scores, kinds)
        )
        bpe = 2
        model += field(2, field(3, bpe) + field(4, len(vocabulary.tokens))
                       + field(35, int(BYTE in vocabulary.types)) + field(45, unknown.encode()))
        model += field(3, field(1, b"identity") + field(3, int(bool(vocabulary.space_prefix))) + field(4, 0)
                       + field(5, 1))
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    def encode(self, text, special):
        if special:
            raise ValueError("control tokens are never found in text")
        return self.processor.encode(text)


def write_vocabulary(path, pre, tokens, types, merges, test=()):
    """A GGUF file with this byte-level BPE vocabulary."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(len(tokens) - 1)
    writer.add_add_bos_token(False)
    for key, values in test:
        writer.add_array(key, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def trained_vocabulary():
    """Tokens, types and merges of a small byte-level BPE vocabulary, trained here on SENTENCES without splitting, so
    that merges cross every boundary that a pre-tokenizer may set."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1000, show_progress=False, initial_alphabet=alphabet)
    numbers = " ".join(str(n) for n in range(0, 3000, 7))
    spaces = ["".join(space + word for space in SPACES for word in ("a", "")), " " * 40 + "a" + " " * 9 + "b"] * 8
    trained.train_from_iterator([*SENTENCES * 3, numbers, *spaces, "it's I'VE don't we'll " * 9], trainer)
    state = json.loads(trained.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].get)
    merges = [" ".join(merge) for merge in state["merges"]]
    # Two bytes without a token, as in some real files.
    for missing in ("\u0104", "\u011b"):
        assert not any(missing in merge for merge in merges)
        tokens.remove(missing)
    types = [1] * len(tokens) + [USER_DEFINED, CONTROL]
    return [*tokens, "<keep>", "<|end|>"], types, merges


def write_synthetic(folder):
    """Writes a vocabulary for each pre-tokenizer, and SentencePiece vocabularies in the manner of Gemma and of Llama 2;
    prints their paths."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    tokens, types, merges = trained_vocabulary()
    for pre in SPLITS:
        path = str(Path(folder) / f"{pre}.gguf")
        write_vocabulary(path, pre, tokens, types, merges)
        print(path)
    for name, space_prefix in (("gemma", False), ("llama-2", True)):
        path = str(Path(folder) / f"{name}.gguf")
        write_sentence_piece(path, space_prefix)
        print(path)


def write_sentence_piece(path, space_prefix):
    """A GGUF file with a SentencePiece BPE vocabulary, trained here. Without a space prefix, runs of spaces, line ends
    and tabs are user-defined, as in Gemma's files."""
    import io
    import sentencepiece
    made = io.BytesIO()
    runs = [] if space_prefix else [c * n for c in "\n\t" for n in range(1, 8)] + ["▁" * n for n in range(2, 12)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([sentence[:400] for sentence in SENTENCES * 9]), model_writer=made, vocab_size=1400,
        model_type="bpe", byte_fallback=True, character_coverage=0.995, normalization_rule_name="identity",
        remove_extra_whitespaces=False, add_dummy_prefix=space_prefix, split_by_whitespace=True,
        user_defined_symbols=[*runs, "<tag>"], minloglevel=2, hard_vocab_limit=False)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
    count = pieces.get_piece_size()
    kind = lambda i: (UNKNOWN if pieces.is_unknown(i) else CONTROL if pieces.is_control(i) else BYTE if
                      pieces.is_byte(i) else USER_DEFINED if pieces.id_to_piece(i) in [*runs, "<tag>"] else 1)
    types = [kind(i) for i in range(count)]
    # llama.cpp's converter writes the spaces of user-defined tokens as spaces.
    tokens = [pieces.id_to_piece(i).replace("▁", " ") if types[i] == USER_DEFINED else pieces.id_to_piece(i)
              for i in range(count)]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_scores([pieces.get_score(i) for i in range(count)])
    writer.add_bos_token_id(pieces.bos_id())
    writer.add_eos_token_id(pieces.eos_id())
    writer.add_unk_token_id(pieces.unk_id())
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(space_prefix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def make_fixture(path):
    """Writes the vocabulary with texts and the ids that `tokenizers` gives them for each pre-tokenizer. llama.cpp's ids
    are compared; they differ where it approximates a published expression."""
    tokens, types, merges = trained_vocabulary()
    picked = random.Random(3)
    texts = [*SENTENCES, *picked.sample([t for t in strings(3000, ["<keep>", "<|end|>"], 2) if 0 < len(t) < 60], 45)]
    # Each different list of ids is stored once; `index` refers to it, for each pre-tokenizer and text.
    stored, index = {}, []
    for pre in SPLITS:
        write_vocabulary(path, pre, tokens, types, merges)
        vocabulary = Vocabulary(path)
        expected = [Tokenizers(path, vocabulary).encode(text, True) for text in texts]
        theirs = [LlamaCpp(path, vocabulary).encode(text, True) for text in texts]
        different = [text for text, a, b in zip(texts, expected, theirs) if a != b]
        print(f"{pre}: llama.cpp differs in {len(different)} of {len(texts)} texts", *map(repr, different[:2]))
        index += [stored.setdefault(tuple(found), len(stored)) for found in expected]
    test = [("test.texts", texts), ("test.pre", list(SPLITS)), ("test.index", index),
            ("test.lengths", [len(found) for found in stored]), ("test.ids", [i for found in stored for i in found])]
    write_vocabulary(path, "gpt-2", tokens, types, merges, test)


def left_out(kind, vocabulary, special):
    """Parts of strings that a reference encodes otherwise by design."""
    user_defined = {t for t, ty in zip(vocabulary.tokens, vocabulary.types) if ty == USER_DEFINED}
    if kind is LlamaCpp and special:
        return vocabulary.ambiguous()
    if kind is SentencePiece and vocabulary.space_prefix:
        # llama.cpp and we begin again, with a space, after such a token.
        return user_defined
    if kind is SentencePiece and any(" " in token for token in user_defined):
        # SentencePiece takes the mark for a space, and finds such tokens.
        return {"▁"}
    return set()


def ours(encoder, path, texts, special):
    """Ids of the program under test: a JSON string a line in, a JSON list a line out."""
    command = [encoder, path] + ([] if special else ["--no-parse-special"])
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    done = subprocess.run(command, input=lines.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"{path}: {done.stderr.decode().strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def is_new(character):
    """Whether the module `regex` knows a character of a later version of Unicode than Python."""
    import regex
    return unicodedata.category(character) == "Cn" and not regex.match(r"\p{Cn}", character)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", help="the example `encode`, built")
    parser.add_argument("--make-fixture", metavar="FILE", help="write runtime/src/tokenizer/fixtures/byte_level.gguf")
    parser.add_argument("--count", type=int, default=6000, help="strings for each file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="the reference to run: llama.cpp, tokenizers or sentencepiece")
    parser.add_argument("--show", type=int, default=3, help="differences to list for each file and reference")
    parser.add_argument("--write-synthetic", metavar="FOLDER", help="write small vocabularies of all kinds, to compare")
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()
    if args.write_synthetic:
        return write_synthetic(args.write_synthetic)
    if args.make_fixture:
        return make_fixture(args.make_fixture)
    if not args.encoder or not args.files:
        parser.error("--encoder and a file are required")
    failed = False
    for path in args.files:
        vocabulary = Vocabulary(path)
        name = Path(path).name
        texts = strings(args.count, vocabulary.special(), args.seed)
        for special in (True, False):
            mine = ours(args.encoder, path, texts, special)
            mode = "special tokens parsed" if special else "special tokens as text"
            for kind in (LlamaCpp, Tokenizers, SentencePiece):
                if args.only not in (None, kind.name):
                    continue
                try:
                    reference = kind(path, vocabulary)
                    theirs = [reference.encode(text, special) for text in texts]
                except ValueError as reason:
                    if args.only:
                        print(f"{name}: {kind.name}, {mode}: not compared ({reason})")
                    continue
                avoided = left_out(kind, vocabulary, special)
                compared = [i for i, text in enumerate(texts) if not any(part in text for part in avoided)]
                different = [i for i in compared if mine[i] != theirs[i]]
                if kind is Tokenizers:
                    different = [i for i in different if not any(map(is_new, texts[i]))]
                approximated = kind is LlamaCpp and SAME.get(vocabulary.pre, vocabulary.pre) in APPROXIMATED
                note = f"; without those that contain {', '.join(sorted(avoided))}" if len(compared) < len(texts) else ""
                note += "; llama.cpp approximates this splitting" if approximated else ""
                print(f"{name}: {kind.name}, {mode}: {len(compared) - len(different)} of {len(compared)} equal{note}",
                      flush=True)
                failed |= bool(different) and not approximated
                different.sort(key=lambda i: len(texts[i]))
                for i in different[:args.show]:
                    print(f"    {texts[i][:200]!r}\n      ours   {mine[i][:40]}\n      theirs {theirs[i][:40]}")
        if Path(path + ".inp").exists():
            cases = Path(path + ".inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
            want = [[int(i) for i in line.split()] for line in Path(path + ".out").read_text().splitlines()]
            got = ours(args.encoder, path, cases[:len(want)], False)
            equal = sum(a == b for a, b in zip(got, want))
            print(f"{name}: its test strings: {equal} of {len(want)} equal", flush=True)
            failed |= equal != len(want)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
