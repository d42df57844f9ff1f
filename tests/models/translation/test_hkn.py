from translation_cases import VOCABULARY, reverse_task, train_to_reverse, written

from hkconv.models.translation import create_translator
from hkconv.models.translation.tokens import PAD


def test_writes_backwards_without_a_mistake(generator):
    model = create_translator(
        "hkn", VOCABULARY, dim=16, num_heads=2, feedforward_dim=32, num_layers=1, dropout=0.0, max_length=8
    )
    train_to_reverse(model, generator, steps=250, lr=0.015, lengths=(2, 4))
    source, target = reverse_task(generator, 500, (2, 4))
    found = written(model.eval(), source, target.size(1))
    right = ((found == target) | (target == PAD)).all(1)
    assert right.float().mean() >= 0.99
