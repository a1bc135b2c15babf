"""Shipped networks of convolutions and linear layers."""

import pytest
import torch
from torchvision.models import vgg16

from clockwatt.operations import stacks


def test_a_name_gives_so_many_layers_that_keep_the_shape():
    network = stacks.conv_3_linear_2()
    kinds = [type(layer).__name__ for layer in network]
    assert (kinds.count("Conv2d"), kinds.count("Linear")) == (3, 2)
    with torch.device("meta"):
        assert stacks.conv_1_linear_1()(torch.empty(2, 64, 4, 112)).shape == (2, 64, 4, 112)


def test_pooling_first_gives_what_vgg16_gives():
    first = stacks.vgg16_pool_first().eval()
    usual = vgg16(weights=None).eval()
    order = [type(layer).__name__ for layer in first.features][2:5]
    assert order == ["Conv2d", "MaxPool2d", "ReLU"]
    usual.load_state_dict(first.state_dict())
    images = torch.randn(1, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(first(images), usual(images))


def test_another_name_is_no_network():
    with pytest.raises(AttributeError, match="conv_three"):
        stacks.conv_three  # noqa: B018  # looked up
