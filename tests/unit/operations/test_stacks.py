"""Shipped networks of convolutions and linear layers."""

import pytest
import torch

from clockwatt.operations import stacks


def test_a_name_gives_so_many_layers_that_keep_the_shape():
    network = stacks.conv_3_linear_2()
    kinds = [type(layer).__name__ for layer in network]
    assert (kinds.count("Conv2d"), kinds.count("Linear")) == (3, 2)
    with torch.device("meta"):
        assert stacks.conv_1_linear_1()(torch.empty(2, 64, 4, 112)).shape == (2, 64, 4, 112)


def test_another_name_is_no_network():
    with pytest.raises(AttributeError, match="conv_three"):
        stacks.conv_three  # noqa: B018  # looked up
