"""Training data of the demo model: arithmetic questions, short stories, and their tokens.

Questions are integer additions, subtractions and products. One in sixteen, chosen by a hash of its numbers, is held
out: no training row has it, in either order of the numbers where the order does not matter. (Questions of two digits
are too few to infer one from the others, so these are all taught.) `demo/src/question.rs` has the same hash and
the same distribution; keep the two alike.

Stories follow a small grammar in which later words depend on earlier ones: verbs and pronouns on number, what is found
on what was wanted, the last word on what was found.
"""

import re

import numpy as np

# Questions.

SIGNS = "+-*"
SIGN_ODDS = (0.4, 0.4, 0.2)
LENGTH_ODDS = (1 / 6, 2 / 6, 3 / 6)  # of numbers with one, two and three digits
HELD_OUT = 16


def mix(x):
    """MurmurHash3's 32-bit finalizer: every bit of the result depends on every bit of `x`, a uint32 array."""
    x = x.astype(np.uint64)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = ((x ^ (x >> shift)) * factor) & 0xFFFFFFFF
    return x ^ (x >> 16)


def is_held_out(sign, a, b):
    """Whether training must not see the question. A sum and a product are one question in either order."""
    low, high = np.minimum(a, b), np.maximum(a, b)
    first, second = np.where(sign == 1, a, low), np.where(sign == 1, b, high)
    return (high >= 10) & (mix(sign * 1_000_000 + first * 1000 + second) % HELD_OUT == 0)


def draw_questions(rng, count):
    """`count` questions: indices into SIGNS, and two numbers of up to three digits. One factor of a product has one."""
    sign = rng.choice(3, count, p=SIGN_ODDS)
    lengths = rng.choice(3, (2, count), p=LENGTH_ODDS)
    short = rng.integers(0, 2, count)
    lengths[short, np.arange(count)] = np.where(sign == 2, 0, lengths[short, np.arange(count)])
    least = np.where(lengths == 0, 0, 10**lengths)
    a, b = least + (rng.random((2, count)) * (10 ** (lengths + 1) - least)).astype(np.int64)
    return sign, a, b


def questions(rng, count, held_out):
    """`count` questions that are all held out, or none of them."""
    parts, found = [], 0
    while found < count:
        part = draw_questions(rng, 20 * count if held_out else count + count // 8)
        keep = is_held_out(*part) == held_out
        parts.append([column[keep] for column in part])
        found += int(keep.sum())
    return [np.concatenate(columns)[:count] for columns in zip(*parts)]


def answers(sign, a, b):
    return np.select([sign == 0, sign == 1], [a + b, a - b], a * b)


# Stories.

ADJECTIVES = "old young small big brave clever quiet hungry tired lazy gentle curious".split()
ANIMALS = dict(
    fox="foxes", owl="owls", cat="cats", dog="dogs", mouse="mice", bear="bears", frog="frogs", goose="geese",
    hen="hens", wolf="wolves", rabbit="rabbits", horse="horses",
)
PLACES = [
    "under the bridge", "in the tower", "by the river", "behind the mill", "near the lake", "on the hill",
    "in the forest", "at the farm",
]
# What is wanted, and how it leaves its finder.
THINGS = {
    "red apple": "full", "silver key": "rich", "warm coat": "cosy", "loaf of bread": "full", "small boat": "free",
    "golden ring": "rich", "new friend": "glad", "piece of cheese": "full", "book of maps": "wise", "blue lamp": "safe",
}
TIMES = ["In the morning", "At noon", "In the evening", "At night", "One day", "In spring", "In winter"]


def story(rng):
    """One story of four sentences."""
    pick = lambda options: options[rng.integers(len(options))]
    animal, adjective, thing = pick(list(ANIMALS)), pick(ADJECTIVES), pick(list(THINGS))
    home, place = rng.permutation(PLACES)[:2]
    if rng.integers(2):
        who, it, s, es = f"The {adjective} {animal}", "it", "s", "is"
    else:
        who, it, s, es = f"The {pick(['two', 'three'])} {adjective} {ANIMALS[animal]}", "they", "", "are"
    return (
        f"{who} live{s} {home}. {it.capitalize()} want{s} a {thing}. {pick(TIMES)} {it} find{s} the {thing} {place} "
        f"and bring{s} it home. Now {it} {es} {THINGS[thing]}."
    )


# Tokens: byte-level BPE as GPT-2's, in the form that a GGUF file holds.

PIECES = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")
VOCAB = 512
END = VOCAB - 1


def byte_characters():
    """GPT-2's character for each byte: itself where it can be printed, else one from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(256 + others.index(byte)) if byte in others else chr(byte) for byte in range(256)]


class Tokenizer:
    """Merges digits and signs with the space before them, and what is frequent in stories. Digits stay single."""

    def __init__(self, rng):
        characters = byte_characters()
        space = characters[ord(" ")]
        self.tokens = list(characters)
        self.merges = []
        for right in "0123456789+-*=":
            self.add(space, right)
        words = {}
        for _ in range(20_000):
            for piece in PIECES.findall(story(rng)):
                words[piece] = words.get(piece, 0) + 1
        words = {piece: [characters[byte] for byte in piece.encode()] for piece in words}
        # Every word counts once: so the rare ones become single tokens too.
        while len(self.tokens) < VOCAB - 1:
            pairs = {}
            for parts in words.values():
                for pair in zip(parts, parts[1:]):
                    pairs[pair] = pairs.get(pair, 0) + 1
            left, right = max(sorted(pairs), key=pairs.get)
            self.add(left, right)
            words = {piece: merged(parts, left, right) for piece, parts in words.items()}
        self.tokens.append("<|end|>")
        self.ids = {token: id for id, token in enumerate(self.tokens)}
        self.words = {piece: [self.ids[part] for part in parts] for piece, parts in words.items()}

    def add(self, left, right):
        self.tokens.append(left + right)
        self.merges.append(f"{left} {right}")

    def story(self, text):
        """The tokens of a story, the end included."""
        return [id for piece in PIECES.findall(text) for id in self.words[piece]] + [END]


def merged(parts, left, right):
    out = []
    for part in parts:
        if out and out[-1] == left and part == right:
            out[-1] = left + right
        else:
            out.append(part)
    return out


# Rows of tokens.

LINES = 6  # questions in a row
WIDTH = 3 + 1 + 3 + 1 + 1 + 4 + 1  # most tokens of a question: a, sign, b, =, minus, answer, end of line
NOTHING = -1


def digits(numbers, count):
    """[n, count] digits, leading zeros as NOTHING."""
    powers = 10 ** np.arange(count - 1, -1, -1)
    found = numbers[:, None] // powers % 10
    found[(numbers[:, None] < powers) & (powers > 1)] = NOTHING
    return found


def question_tokens(tokenizer, spaced, sign, a, b):
    """([n, WIDTH] tokens with NOTHING in places, [n, WIDTH] whether a token belongs to the answer).

    `17 + 25 = 42` where `spaced`, else `17+25=42`. A token follows the answer for the end; it is END.
    """
    plain, after_space = ord("0"), tokenizer.ids["Ġ0"]
    answer = answers(sign, a, b)

    def number(values, count, spaced):
        found = digits(values, count)
        first = np.zeros_like(found, bool)
        first[np.arange(len(found)), (found != NOTHING).argmax(1)] = True
        ids = found + np.where(first & spaced[:, None], after_space, plain)
        return np.where(found == NOTHING, NOTHING, ids)

    def symbol(characters, chosen):
        loose = np.array([tokenizer.ids["Ġ" + c] for c in characters])[chosen]
        tight = np.array([ord(c) for c in characters])[chosen]
        return np.where(spaced, loose, tight)[:, None]

    zero = np.zeros_like(sign)
    minus = np.where(answer[:, None] < 0, symbol("-", zero), NOTHING)
    tokens = np.concatenate(
        [
            number(a, 3, np.zeros_like(spaced)),
            symbol(SIGNS, sign),
            number(b, 3, spaced),
            symbol("=", zero),
            minus,
            number(np.abs(answer), 4, spaced & (answer >= 0)),
            np.full((len(a), 1), END),
        ],
        axis=1,
    )
    belongs = np.broadcast_to(np.arange(WIDTH) >= 8, tokens.shape)
    return tokens, belongs & (tokens != NOTHING)


def pack(tokens, targets, length):
    """Moves what is something to the left of each row and cuts to `length`; END fills up, without a target."""
    order = np.argsort(tokens == NOTHING, axis=1, kind="stable")[:, :length]
    tokens = np.take_along_axis(tokens, order, 1)
    targets = np.take_along_axis(targets, order, 1) & (tokens != NOTHING)
    return np.where(tokens == NOTHING, END, tokens), targets


def question_rows(tokenizer, rng, count, length):
    """([count, length] tokens, which of them are targets): LINES questions a row, each on a line of its own.

    After an answer the model is to say END, whatever follows: so a line ends with a target that is END, but what stands
    there for the next line is a line feed.
    """
    drawn = questions(rng, count * LINES, held_out=False)
    tokens, targets = question_tokens(tokenizer, rng.random(count * LINES) < 0.75, *drawn)
    tokens, targets = pack(tokens.reshape(count, -1), targets.reshape(count, -1), length + 1)
    inputs = np.where((tokens == END) & targets, ord("\n"), tokens)
    return inputs[:, :-1], np.where(targets, tokens, NOTHING)[:, 1:]


def story_pool(tokenizer, rng, count, length):
    """[count, length + 1] tokens of stories, NOTHING after their ends."""
    pool = np.full((count, length + 1), NOTHING)
    for row in pool:
        ids = tokenizer.story(story(rng))
        assert len(ids) <= len(row), "a story is longer than a row"
        row[: len(ids)] = ids
    return pool


def batch(tokenizer, rng, stories, rows, length):
    """(inputs, targets), int64 [rows, length]: one row in eight a story, the others questions. NOTHING: no target."""
    told = stories[rng.integers(len(stories), size=rows // 8)]
    inputs, targets = question_rows(tokenizer, rng, rows - len(told), length)
    story_inputs = np.where(told == NOTHING, END, told)[:, :-1]
    return np.concatenate([inputs, story_inputs]), np.concatenate([targets, told[:, 1:]])


def exam(tokenizer, rng, count):
    """Held-out questions, each at the start of a row: (inputs, targets [count, WIDTH - 1], indices into SIGNS)."""
    drawn = questions(rng, count, held_out=True)
    tokens, belongs = question_tokens(tokenizer, np.ones(count, bool), *drawn)
    tokens, belongs = pack(tokens, belongs, WIDTH)
    return tokens[:, :-1], np.where(belongs, tokens, NOTHING)[:, 1:], drawn[0]
