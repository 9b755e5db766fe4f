"""Words that environments are made of: `TRAIN` for all that is trained on, `RESERVED` for the `near` held-out set.

The two are disjoint, and no word lies inside another word, so that `grep plum` finds plum only.
"""

from collections.abc import Sequence
from random import Random

_TRAIN = """
acorn agate alder almond amber anchor angel ankle anvil apple apron aspen atlas attic autumn bagel baker bamboo
banana banjo barge barrel basil basket beach beacon beaver beetle berry birch bison blanket blossom bonnet
bottle boulder bowl bracket brick bridge broom bucket buffalo bugle butter button cabin cactus camel candle
canoe canyon carbon carrot castle cedar celery cello chalk cherry chess chimney cider cinder circus citrus
clover cobra coconut comet copper coral cotton cougar coyote crane crater cricket crocus crystal daisy desert
diamond dingo dolphin donkey dragon drum eagle ember emerald falcon feather fennel ferret fiddle flint flute
forest fossil fox frost galaxy garden garlic gazelle geyser ginger giraffe glacier goblet goose gopher granite
grape gravel guitar hammer harbor harp hatchet hazel heron hickory hippo honey hornet husky hyena iguana indigo
iris island ivory jackal jaguar jasmine jelly jigsaw juniper kayak kernel kettle kilo kiwi koala ladder ladle
lagoon lantern lark laurel lava lemon lentil lichen lilac lima lizard llama lobster lotus lunar lynx magnet
magpie mango maple marble marsh meadow melon meteor mink mint mirror mocha mole monsoon moose mosaic moss moth
muffin nectar needle nickel nutmeg oak oasis oboe olive onion opal orbit orchid osprey otter oyster paddle panda
panther paper parrot pastel peach pearl pebble pecan pelican pepper petal piano pickle pigeon pillow pine pixel
planet plaza plum pocket polar pollen pony poplar poppy possum potato prairie prism puffin puma pumpkin quail
quartz quilt rabbit radish raft raven ribbon rice robin rocket rose ruby saddle saffron salmon sand satin saturn
scarf shark sherry silver sitar sloth smoke snail sparrow spider spruce squash squid stone stork sugar sumac
swan tango teapot thistle thunder tiger timber toad tomato topaz torch trout tulip tundra turnip turtle umber
valley vanilla velvet violet violin viper vulcan waffle wagon walnut walrus wasp weasel whale willow window wolf
yarrow yeti zebra zephyr zinc zinnia
"""
_RESERVED = """
abbey badger balsam bazaar bobcat bonsai brass bronze burrow cashew cheetah chisel chive cobalt condor cosmos
cypress dahlia ditch dune elk fable fern fig fjord gecko gerbil glove grotto gull hare hemlock hinge hyssop ibex
igloo jade jewel kelp knoll larch lemur linen locket lupin mallet maroon mussel newt nylon oatmeal onyx osier
parsley pewter plover quiver rhubarb rye sequoia sorrel spade stoat tapir thyme toffee tunic urchin vault vole
wren yucca zither
"""
TRAIN: tuple[str, ...] = tuple(_TRAIN.split())
RESERVED: tuple[str, ...] = tuple(_RESERVED.split())
EXTENSIONS = ("txt", "md", "dat", "cfg", "lst", "doc")


def seeded(*parts: object) -> Random:
    """A generator named by its purpose and numbers; equal parts draw equally on every machine."""
    return Random("/".join(("envwheel", *(str(part) for part in parts))))  # noqa: S311


class NamesExhaustedError(ValueError):
    """A task asked for more distinct words than its lexicon holds."""


class Names:
    """Hands out every word at most once, so that the steps of one task never collide."""

    def __init__(self, rng: Random, words: Sequence[str] = TRAIN) -> None:
        self._rng = rng
        self._left = list(words)

    def word(self) -> str:
        """Raises:
        NamesExhaustedError: every word has been handed out.
        """
        if not self._left:
            raise NamesExhaustedError(
                "the lexicon has no word left: use fewer steps or distractors, or a larger lexicon"
            )
        index = self._rng.randrange(len(self._left))
        self._left[index], self._left[-1] = self._left[-1], self._left[index]
        return self._left.pop()

    def words(self, count: int) -> tuple[str, ...]:
        return tuple(self.word() for _ in range(count))

    def file(self, extension: str | None = None) -> str:
        """A file name such as `kilo.txt`; without an extension one of the plain text ones."""
        return f"{self.word()}.{extension or self._rng.choice(EXTENSIONS)}"
