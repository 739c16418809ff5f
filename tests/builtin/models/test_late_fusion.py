"""An MLP of several inputs."""

import pytest
import torch
from torch import nn

from support.checking import mistake, resolved, write
from trainlattice_plugin_models.late_fusion import LateFusion
from trainlattice_plugin_models.options import LateFusionOptions

pytestmark = pytest.mark.torch


def built(**options):
    return LateFusion(LateFusionOptions(**{"input_dims": {"wide": 4, "flat": 3}, "dropout": 0.0, **options}))


def test_each_input_has_layers_of_its_own_before_they_meet():
    torch.manual_seed(0)
    model = built(tower_dims=(5,), hidden_dims=(6,), num_classes=2)
    torch.manual_seed(0)
    wide, flat = nn.Linear(4, 5), nn.Linear(3, 5)
    hidden, last = nn.Linear(10, 6), nn.Linear(6, 2)
    x, y = torch.randn(7, 2, 2), torch.randn(7, 3)
    gelu = nn.functional.gelu
    met = torch.cat([gelu(wide(x.flatten(1))), gelu(flat(y))], 1)
    assert torch.equal(model(wide=x, flat=y), last(gelu(hidden(met))))
    assert torch.equal(model(flat=y, wide=x), model(wide=x, flat=y))
    assert {name.split(".")[0] for name in model.state_dict()} == {"wide_tower", "flat_tower", "head"}


def test_without_any_hidden_layer_it_is_linear_in_all_inputs():
    model = built(tower_dims=(), hidden_dims=(), num_classes=2)
    assert [tuple(p.shape) for p in model.parameters()] == [(2, 7), (2,)]
    x, y = torch.randn(2, 4), torch.randn(2, 3)
    assert torch.equal(model(wide=x, flat=y), model.head[0](torch.cat([x, y], 1)))


@pytest.mark.parametrize(
    ("shapes", "found"),
    [
        ({"wide": (2, 5), "flat": (2, 3)}, "{'wide': 5, 'flat': 3}"),
        ({"wide": (2, 4)}, "{'wide': 4}"),
        ({"wide": (2, 4), "thin": (2, 3)}, "{'wide': 4, 'thin': 3}"),
    ],
)
def test_inputs_of_other_names_or_widths_are_refused(shapes, found):
    with pytest.raises(ValueError) as raised:
        built()(**{name: torch.zeros(*shape) for name, shape in shapes.items()})
    assert f"the inputs have the widths {found}, and input_dims says" in str(raised.value)


def test_names_and_widths_are_compared_for_the_first_batch_of_a_shape_only(monkeypatch):
    compared = []

    def require_fit(model, shapes):
        compared.append({name: tuple(shape) for name, shape in shapes.items()})
        return original(model, shapes)

    original = LateFusion._require_fit
    monkeypatch.setattr(LateFusion, "_require_fit", require_fit)
    model = built()
    for size in (5, 5, 2):  # the last batch of an epoch may be smaller
        model(wide=torch.zeros(size, 4), flat=torch.zeros(size, 3))
    assert compared == [{"wide": (4,), "flat": (3,)}]
    model(wide=torch.zeros(5, 2, 2), flat=torch.zeros(5, 3))
    assert compared[1:] == [{"wide": (2, 2), "flat": (3,)}]


def test_inputs_are_refused_also_after_some_that_fit():
    """Without hidden layers of their own nothing else would notice: five and two values are seven too."""
    model = built(tower_dims=())
    model(wide=torch.zeros(2, 4), flat=torch.zeros(2, 3))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"the inputs have the widths \{'wide': 5, 'flat': 2\}"):
            model(wide=torch.zeros(2, 5), flat=torch.zeros(2, 2))


def test_it_is_compiled_once_and_whole():
    compiled = []

    def backend(graph, example):
        compiled.append(graph)
        return graph.forward

    torch._dynamo.reset()
    model = torch.compile(built(), backend=backend, fullgraph=True)
    for _ in range(3):
        model(wide=torch.zeros(2, 4), flat=torch.zeros(2, 3))
    assert len(compiled) == 1


@pytest.mark.parametrize("name", ["type", "half", "values", "forward", "from"])
def test_an_input_may_have_any_name(name):
    """Names that a module has already among them."""
    model = built(input_dims={name: 2}, num_classes=1)
    assert model(**{name: torch.zeros(3, 2)}).shape == (3, 1)


def test_its_outputs_are_compared_with_the_data_before_torch_is_imported(tmp_path):
    model = "model: {{name: late_fusion, input_dims: {{x: 64}}, inputs: {{x: input}}, num_classes: {n}}}\n"
    text = model + "dataset: digits\n"
    resolved(write(tmp_path, text.format(n=10)))
    assert mistake(write(tmp_path, text.format(n=9))).path == "model.num_classes"


@pytest.mark.parametrize("dims", ["{}", "{a b: 2}", "{a: 0}", "{1a: 2}"])
def test_inputs_that_are_none_or_no_arguments_are_refused(tmp_path, dims):
    text = f"model: {{name: late_fusion, input_dims: {dims}}}\ndataset: digits\n"
    assert mistake(write(tmp_path, text)).path.startswith("model.input_dims")
