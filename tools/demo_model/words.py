"""Words of the small world, in two disjoint parts: what training may use, and what only the evaluation uses."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tools.demo_model.wordlists import CITIES, COMMON_WORDS, FIRST_NAMES, SURNAMES


@dataclass(frozen=True, slots=True)
class WordList:
    """One category of words; `held` never appears in training data."""

    train: tuple[str, ...]
    held: tuple[str, ...]

    def of(self, held: bool) -> tuple[str, ...]:
        return self.held if held else self.train


def _listed(train: str, held: str) -> WordList:
    """Read two comma-separated lists."""
    return WordList(tuple(w.strip() for w in train.split(",")), tuple(w.strip() for w in held.split(",")))


LISTS: dict[str, WordList] = {
    "name": _listed(
        "Anna, Ben, Carla, David, Emma, Felix, Greta, Hugo, Ines, Jonas, Karin, Lena, Max, Nora, Oscar, Paula, Quentin,"
        "Rosa, Simon, Tina, Ulrich, Vera, Walter, Xenia, Yusuf, Zoe, Adam, Bella, Chen, Dora, Erik, Fatima, George,"
        "Helena, Ivan, Julia, Kenji, Laura, Marco, Nadia, Omar, Pedro, Rachel, Stefan, Teresa, Uma, Victor, Wendy, Yara,"
        "Zain, Alex, Robert, Susan, Thomas, Karen, Steven, Linda, Mark, Donna, Paul, Kate, Andrew, Ruth, Kevin, Sharon,"
        "Brian, Laila, Ahmed, Priya, Raj, Mei, Hiroshi, Sven, Ingrid, Pierre, Claire, Giulia, Luca, Sofia, Diego, Elena,"
        "Miguel, Lucia, Jan, Eva, Tomas, Petra, Olga, Dmitri, Anya, Kofi, Amara, Zuri, Tariq, Leila, Noah, Mia, Liam,"
        "Ava, Ethan, Grace, Henry, Ivy, Jack, Lily, Mason, Ruby, Sam, Tom, Joe, Amy, Dan, Sue, Tim, Jim, Ann, Bob,"
        "Harriet, Leonard, Ottilie, Bruno, Cosima, Fritz, Gustav, Hanna, Isolde, Jasper, Konrad, Matilda",
        "Alice, Maria, John, Sarah, Michael, Olivia, Daniel, Sophie, James, Charlotte, Peter, Hannah, Lukas, Isabella,"
        "William, Amelia, Oliver, Chloe, Benjamin, Natalie, Samuel, Victoria, Nicolas, Katharina, Mateo, Aisha, Ravi,"
        "Yuki, Bjorn, Astrid, Frederic, Camille, Matteo, Bianca, Carlos, Rafael, Svetlana, Kwame, Layla, Hassan, Mira,"
        "Theo, Edward, Margaret, Philip, Dorothy, Gerald, Penelope, Sebastian, Valentina, Kim, Lee, Ada, Grete, Alan",
    ),
    "colour": _listed(
        "red, blue, green, yellow, purple, pink, brown, black, white, grey, silver, gold, dark blue, light green, beige,"
        "navy, lime, maroon, coral, mint, sky blue, olive, bright red, cream, ruby, bronze, copper, lemon, charcoal",
        "teal, orange, violet, turquoise, magenta, crimson, indigo, scarlet, lavender, amber, pale pink, ochre, khaki",
    ),
    "animal": _listed(
        "dog, cat, horse, cow, sheep, goat, rabbit, mouse, lion, tiger, bear, wolf, deer, duck, goose, eagle, crow,"
        "whale, shark, salmon, frog, snake, turtle, spider, bee, ant, camel, donkey, zebra, monkey, kangaroo, parrot",
        "fox, owl, penguin, elephant, giraffe, dolphin, hedgehog, octopus, panda, otter, falcon, badger, squirrel",
    ),
    "food": _listed(
        "pizza, pasta, rice, bread, soup, salad, curry, cake, cheese, chicken, noodles, tacos, pancakes, potatoes,"
        "fish, beans, toast, eggs, porridge, stew, chips, chocolate, ice cream, apple pie, fried rice, roast beef",
        "lasagna, sushi, risotto, dumplings, ramen, falafel, burritos, waffles, goulash, paella, mushroom soup, ravioli",
    ),
    "drink": _listed(
        "tea, water, milk, juice, cola, apple juice, hot milk, iced tea, green tea, beer, wine, cocoa, cider, rum",
        "coffee, lemonade, espresso, mango juice, ginger ale, black tea, root beer, oat milk",
    ),
    "city": _listed(
        "Berlin, London, Madrid, Rome, Vienna, Oslo, Athens, Dublin, Prague, Warsaw, Cairo, Delhi, Seoul, Lima, Boston,"
        "Chicago, Denver, Dallas, Toronto, Sydney, Munich, Hamburg, Milan, Naples, Geneva, Basel, Lyon, Porto, Seville,"
        "Leeds, York, Bristol, Cork, Bergen, Turku, Riga, Minsk, Kyiv, Sofia, Split, Ankara, Tehran, Dubai, Doha, Accra,"
        "Nairobi, New Delhi, San Diego, Mexico City, Los Angeles, Cape Town, Dresden, Leipzig, Bonn, Ulm, Graz",
        "Paris, Tokyo, Lisbon, Zurich, Helsinki, Barcelona, Seattle, Melbourne, Kyoto, Montreal, Budapest, Copenhagen,"
        "San Francisco, Buenos Aires, Istanbul, Stockholm, Edinburgh, Valencia, Bogota, Hanoi, Krakow, Florence",
    ),
    "job": _listed(
        "teacher, doctor, nurse, driver, farmer, cook, baker, painter, lawyer, builder, writer, singer, dentist,"
        "waiter, tailor, barber, sailor, soldier, judge, clerk, miner, hunter, fisher, plumber, banker, dancer",
        "librarian, pilot, carpenter, gardener, engineer, chemist, journalist, electrician, photographer, astronaut",
    ),
    "hobby": _listed(
        "running, reading, cooking, painting, dancing, singing, hiking, fishing, drawing, climbing, sewing, baking,"
        "football, tennis, hockey, golf, judo, rowing, knitting, swimming, playing cards, riding bikes, board games",
        "gardening, chess, surfing, photography, pottery, yoga, origami, cycling, basketball, playing the violin",
    ),
    "place": _listed(
        "kitchen, drawer, garage, cupboard, bathroom, bedroom, office, car, bag, box, cellar, garden, shed, hall,"
        "red box, top drawer, coat pocket, tool box, locker, desk, blue bag, closet, wardrobe, laundry room",
        "attic, fridge, backpack, suitcase, living room, basement, glove box, cabinet, piano bench, pantry",
    ),
    "month": _listed(
        "January, February, March, May, June, August, September, November, December", "April, July, October"
    ),
    "day": _listed("Monday, Tuesday, Thursday, Friday, Sunday", "Wednesday, Saturday"),
    "thing": _listed(
        "table, chair, lamp, window, door, stone, river, mountain, bridge, tower, boat, train, bicycle, clock, book,"
        "pencil, bottle, cup, plate, spoon, ladder, hammer, rope, candle, mirror, basket, blanket, pillow, shoe, hat,"
        "coat, ring, coin, flag, drum, bell, leaf, flower, tree, cloud, star, moon, island, forest, castle, key",
        "lantern, umbrella, telescope, violin, compass, kettle, anchor, glacier, meadow, lighthouse, rocket, marble",
    ),
}

_SIMPLE_ONSETS = "b c d f g h j k l m n p r s t v w y z".split()
_DOUBLE_ONSETS = "br ch cl cr dr fl fr gl gr kl kr pl pr qu sc sh sk sl sm sn sp st str sw th tr vl wh".split()
_VOWELS = "a e i o u a e i o u a e i o ai au ea ee ia ie io oo ou y".split()
_CODAS = "n r l s t m d k x th nd nt rt ck sh ng st ll rk v z p b g".split()

# English pieces: what the tokenizer learnt from fixed sentences has to be copied from values as well.
_STEMS = (
    "act ball band bank base bell board boat body book branch break bring call camp care cast cent chance change check "
    "child clean clear climb close cloth coast cold com comp con cook corn count court cover craft cross crown cut dark "
    "deal deep dis door down draw dream dress drive drop dust earth edge even ever ex eye face fall farm fast field fight "
    "fill film find fire flat floor flow fly fold foot force form frame free front full game gate give glass go grand "
    "graph grass great green ground group grow guard guest hand hard head heart heat help high hill hold home horn host "
    "house hunt ice in inter iron joy jump just keep kind king kiss know land last late law lead leaf learn leg light "
    "line lock long look love low mail main make man map march mark mass match meal mean meet mid mind mis moon more move "
    "mouth need new next night north note off open out over pack page pan part pass past path pay per piece pin place "
    "plan play point port post pre press pro pull push quick race rain reach read rest rich ride right ring rise road "
    "rock roll roof room root round run sail salt sand save scene sea seat self send set shape share sharp shift ship "
    "shop show side sign silk sing sleep slow smile smoke snow soft song sound south space speak spell spot spring stage "
    "stand star start state step stock stone stop storm strong sub sun super sweet swim table tail take tall teach team "
    "tell test text thing think throw time tip tooth top tour town trade trans tree true trust turn un under up use view "
    "voice walk wall warm wash watch water wave way weather week west wheel wide wild wind wing wish wood work world year"
).split()
_ENDINGS = "s er ed ing ly ness ment tion able ful less ship ance ive ous al ic ist age ure y le en".split()

_RESERVED = frozenset(part.lower() for words in LISTS.values() for word in words.held for part in (word, *word.split()))


def is_held(word: str) -> bool:
    """Whether a word belongs to the evaluation only."""
    return word.lower() in _RESERVED


def _free(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words of a list that are not held out, not even in part."""
    return tuple(word for word in words if not any(is_held(part) for part in (word, *word.split())))


_COMMON = _free(COMMON_WORDS)
_SURNAMES = _free(SURNAMES)
for _category, _more in (("name", FIRST_NAMES), ("city", CITIES)):
    _list = LISTS[_category]
    LISTS[_category] = WordList(tuple(dict.fromkeys(_list.train + _free(_more))), _list.held)


def common_word(rng: Random) -> str:
    """A real English word."""
    return rng.choice(_COMMON)


def invented_word(rng: Random) -> str:
    """A word from an enormous space of syllables, so that copying is the only way to know it."""
    while True:
        if rng.random() < 0.3:
            word = _blend(rng) if rng.random() < 0.4 else _compound(rng)
        else:
            count = rng.choices((1, 2, 3), (15, 60, 25))[0]
            word = "".join(_syllable(rng) for _ in range(count))
            if rng.random() < 0.5:
                word += rng.choice(_CODAS)
        if 3 <= len(word) <= 10 and not is_held(word):
            return word


def _compound(rng: Random) -> str:
    """A stem with another stem, an ending or a syllable."""
    return rng.choice(_STEMS) + rng.choice((rng.choice(_STEMS), rng.choice(_ENDINGS), _syllable(rng)))


def _blend(rng: Random) -> str:
    """The beginning of one real word and the end of another, or of a stem."""
    first = common_word(rng)
    second = common_word(rng) if rng.random() < 0.7 else rng.choice(_STEMS)
    return first[: rng.randint(2, len(first) - 1)] + second[rng.randint(1, len(second) - 1) :]


def _syllable(rng: Random) -> str:
    roll = rng.random()
    onset = "" if roll < 0.1 else rng.choice(_DOUBLE_ONSETS if roll < 0.3 else _SIMPLE_ONSETS)
    return onset + rng.choice(_VOWELS) + (rng.choice(_CODAS) if rng.random() < 0.25 else "")


def random_code(rng: Random) -> str:
    """A string of mixed letters and digits, as a password or an identifier would be."""
    alphabet = rng.choice(
        ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHJKLMNPQRSTUVWXYZ0123456789", "abcdefABCDEF0123456789")
    )
    while True:
        word = "".join(rng.choice(alphabet) for _ in range(rng.randint(3, 7)))
        if not is_held(word):
            return word


def number(rng: Random, held: bool, low: int, high: int) -> str:
    """A number in a range; one in seven of all numbers belongs to the evaluation."""
    while True:
        value = rng.randint(low, high)
        if value < 10 or (value % 7 == 3) == held:
            return str(value)


class Vocabulary:
    """Draws values of every category, either for training or for the evaluation."""

    def __init__(self, rng: Random, held: bool) -> None:
        self.rng = rng
        self.held = held

    def listed(self, category: str) -> str:
        return self.rng.choice(LISTS[category].of(self.held))

    def word(self, category: str) -> str:
        """A listed word or, in training most of the time, one or two real or invented ones."""
        roll = self.rng.random()
        if self.held or roll < 0.3:
            return self.listed(category)
        if roll < 0.6:
            return common_word(self.rng)
        if roll < 0.68:
            return f"{common_word(self.rng)} {common_word(self.rng)}"
        if roll < 0.93:
            return invented_word(self.rng)
        return f"{invented_word(self.rng)} {invented_word(self.rng)}"

    def proper(self, category: str) -> str:
        """A name: listed, invented, in lower case, of two words, or a random code."""
        roll = self.rng.random()
        if self.held or roll < 0.45:
            return self.listed(category)
        if roll < 0.48:
            return self.listed(category).lower()
        if roll < 0.55:
            return invented_word(self.rng)
        if roll < 0.59:
            return random_code(self.rng)
        if roll < 0.71:
            return self._two_words(category)
        return invented_word(self.rng).title()

    def _two_words(self, category: str) -> str:
        """A first name with a surname, or an invented name of two words."""
        if category == "name" and self.rng.random() < 0.6:
            return f"{self.listed(category)} {self.rng.choice(_SURNAMES)}"
        return f"{invented_word(self.rng).title()} {invented_word(self.rng).title()}"

    def number(self, low: int, high: int) -> str:
        return number(self.rng, self.held, low, high)

    def code(self) -> str:
        """A password, a word, or a long number."""
        roll = self.rng.random()
        if not self.held and roll < 0.07:
            return self._passphrase()
        if roll < 0.4:
            return self.word("thing")
        if roll < 0.7:
            return self.number(100, 99999)
        return random_code(self.rng)

    def _passphrase(self) -> str:
        """A real word made into a code: joined with another, in capitals, or with a digit behind."""
        word = common_word(self.rng)
        roll = self.rng.random()
        if roll < 0.4:
            return f"{word}-{common_word(self.rng)}"
        return word.upper() if roll < 0.7 else f"{word}{self.rng.randint(0, 9)}"

    def moment(self) -> str:
        """A time, a weekday or a month, as an answer to `when`."""
        roll = self.rng.random()
        if roll < 0.5:
            return f"at {self.number(1, 12)} {self.rng.choice(('am', 'pm'))}"
        if roll < 0.8:
            return f"on {self.listed('day')}"
        return f"in {self.listed('month')}"

    def spot(self) -> str:
        """A place for a thing, as an answer to `where`."""
        return f"{self.rng.choice(('in', 'under', 'behind', 'on', 'next to'))} the {self.word('place')}"

    def draw(self, category: str) -> str:
        """A value of any category named in the table of facts."""
        if category in ("name", "city"):
            return self.proper(category)
        if category == "number":
            return self.number(1, self.rng.choice((20, 100, 1000, 9999)))
        if category == "age":
            return self.number(12, 90)
        if category == "code":
            return self.code()
        if category == "moment":
            return self.moment()
        if category == "spot":
            return self.spot()
        return self.listed(category) if category in ("month", "day") else self.word(category)
