"""Families of models against transformers in float64, over seeds: prefill and cached decode."""

import numpy as np
import peer_models
import pytest
import tiny_models
from test_models import BAR, by_token, open_model, recorded

pytestmark = pytest.mark.peers


@pytest.mark.parametrize("name", tiny_models.MODELS)
def test_logits_of_three_seeds(tmp_path, isa, name):
    config, shapes = peer_models.saved(name, tmp_path)
    known = recorded()["models"][name]
    config.pop("transformers_version")
    assert (config, shapes) == (known["config"], known["shapes"])
    for seed in range(3):
        tiny_models.write(tmp_path, config, shapes, seed)
        ids = tiny_models.ids_of(seed)
        want = peer_models.logits(peer_models.reference(tmp_path), ids)
        bar = BAR * max(1, want.std())
        with open_model(tmp_path, isa) as model:
            assert np.abs(model.logits(ids, all=True) - want).max() <= bar
            assert np.abs(by_token(model, ids) - want).max() <= bar
