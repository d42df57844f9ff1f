import pytest

from hkconv.errors import InputError
from hkconv.language.recipe import TranslationRecipe, make_translation_recipe


def test_a_recipe_survives_being_written():
    recipe = TranslationRecipe(train="a", valid="b", minutes=2, num_heads=2)
    assert make_translation_recipe(recipe.flat()) == recipe


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"train": None}, "train must be the common beginning of two files' names, got None"),
        ({"model": "hkm"}, "model must be hkn or hybonet"),
        ({"batch_tokens": 100}, "batch_tokens must be at least max_length = 256, got 100"),
        ({"dropout": 1.0}, "dropout must be a number of at least 0 and below 1"),
        ({"stepz": 3}, "unknown key 'stepz' in the recipe; did you mean 'steps'"),
        ({"model": "bibert"}, "bert must name a folder for the model bibert"),
        ({"model": "hkn", "bert": "x"}, "bert must name a folder for the model bibert, and for no other, got 'x'"),
        ({"form": "flat"}, "form must be paper or views, got 'flat'"),
        ({"model": "hybonet", "form": "views"}, "form must be paper for the model hybonet, got 'views': .* for hkn"),
        (
            {"model": "transformer", "output": "planes"},
            "output must be distance for the model transformer, got 'planes': the choice is for hkn and hybonet",
        ),
        ({"minutes": 0}, "minutes must be a number above 0 and at most 1000000000 or none, got 0"),
    ],
)
def test_what_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        make_translation_recipe({"train": "a", "valid": "b", **changes})
