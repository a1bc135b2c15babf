"""Odd questions from Python are answered, or refused for the reason that they are odd."""

import pytest
import torch

import clockwatt
from clockwatt.errors import ClockwattError

X = torch.empty(4, 8)


class Sparse(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("links", torch.eye(8).to_sparse())

    def forward(self, x):
        return torch.sparse.mm(self.links, x.T)


class Endless(torch.nn.Module):
    def forward(self, x):
        return self.forward(x)


QUESTIONS = [
    ((torch.nn.Identity(), X), {}, "does no work on a device"),
    ((torch.nn.Identity, X), {}, "does no work on a device"),
    ((lambda x: x.view(-1).t(), X), {}, "does no work on a device"),
    ((lambda _x: 3, X), {}, "gives no tensor but int"),
    ((lambda x: (x + 1).cpu(), X), {}, "copies data to the CPU"),
    ((lambda x: x.cuda(), X), {}, "asks for a GPU"),
    ((lambda x: x * x.sum().item(), X), {}, "depends on the values of data"),
    ((lambda x: x if x.sum() > 0 else -x, X), {}, "assume_branch"),
    ((lambda x: x / (1 // 0), X), {}, "modulo by zero.*Correct its forward"),
    ((torch.nn.Linear(9, 8), X), {}, r"takes an input of shape \[4, 8\]"),
    ((Endless(), X), {}, "calls itself without end"),
    ((Sparse(), X), {}, "buffer 'links' is sparse"),
    ((torch.nn.DataParallel(torch.nn.Linear(8, 8)), X), {}, "DataParallel"),
    ((torch.nn.Linear(8, 8),), {}, "give an example tensor or a shape"),
    ((torch.nn.Linear(8, 8).double(), X.double()), {}, "'float64' is not supported"),
    ((torch.relu, X), {"training": True}, "no parameter takes part"),
    ((torch.relu, X), {"training": "yes"}, "training 'yes': give True or False"),
    (("resnet50",), {"input": 5}, "input 5: give a shape"),
    (("resnet50",), {"input": (-1, 3, 224, 224)}, "write the shape of the input"),
    (("resnet5O",), {}, "did you mean resnet50"),
    ((5,), {}, "network 5: give a name, a torch.nn.Module"),
    (("resnet50",), {"precision": 16}, "precision 16: give one name"),
    (("resnet50",), {"precision": "fp8"}, "Choose a precision"),
    (("resnet50",), {"point": "fast"}, "is no operating point"),
    (("resnet50",), {"point": "sm9999"}, "has 345 to 1980 MHz"),
    (("resnet50",), {"batch": 8}, r"batch 8: give one or more sizes"),
    (("resnet50",), {"batch": []}, r"batch \[\]: give one or more sizes"),
    (("resnet50",), {"optimizer": "adamx", "training": True}, "is no optimizer"),
    (("resnet50",), {"cache_length": 8, "training": True}, "cache_length is for decoders"),
    (("resnet50",), {"gpu": "a100"}, "there are predictors for a30 .*h100"),
    (("no.such:network",), {"input": (8, 3), "gpu": "a100"}, "there are predictors for a30 .*h100"),
    (("no.such:network",), {"input": (8, 3), "point": "sm9999"}, "has 345 to 1980 MHz"),
    (("no.such:network",), {"input": (8, 3), "host": "nowhere"}, "host nowhere: .*does not exist"),
    (("resnet50",), {"gpu": 5}, "gpus 5: give a string"),
    (("resnet50",), {"host": "nowhere"}, "host nowhere: .*does not exist"),
    (("resnet50",), {"foo": 1}, "unknown field foo"),
    (([1, 2],), {}, "1: give each question of a list as a dict"),
]


@pytest.mark.parametrize(("network", "more", "why"), QUESTIONS)
def test_an_odd_question_is_refused_for_its_cause(network, more, why):
    with pytest.raises(ClockwattError, match=why):
        clockwatt.predict(*network, **{"gpu": "h200"} | more)


@pytest.mark.parametrize("more", [{"gpu": "NVIDIA H200"}, {"gpu": "H200"}, {"gpus": "h200"}, {"points": "default"}])
def test_what_is_meant_is_understood(more):
    answer = clockwatt.predict("resnet18", input="32x3x224x224", **({} if "gpus" in more else {"gpu": "h200"}) | more)
    assert float(answer["time_s"].iloc[0] if hasattr(answer, "iloc") else answer.time_s) > 0
