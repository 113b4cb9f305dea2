"""The registry names every workload once, finds it, and loads nothing before it is asked to."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
from itertools import chain

import pytest

import tensortide.examples
from tensortide.errors import MissingExtra, WorkloadError
from tensortide.examples import Example, examples, find
from tensortide.reports.sections.listings import of_workloads
from tests.conftest import ROOT
from tests.examples.tiny import TINY

ALL = [pytest.param(example, id=example.name) for example in examples()]


def test_listing_and_finding_imports_no_framework() -> None:
    code = (
        "import sys\n"
        "from tensortide.examples import examples, find\n"
        "assert all(example.available in (True, False) for example in examples())\n"
        "find('hf_llama')\n"
        "print([name for name in ('numpy', 'torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_names_are_unique_and_each_has_tiny_settings() -> None:
    names = [example.name for example in examples()]
    assert len(set(names)) == len(names)
    assert set(TINY) == set(names)


@pytest.mark.parametrize("example", ALL)
def test_a_workload_says_what_it_is_and_has_plain_defaults(example: Example) -> None:
    workload = example.load()
    assert (workload.__name__, workload.__module__) == (example.name, example.module)
    assert (workload.__doc__ or "").splitlines()[0] == example.summary
    given = inspect.signature(workload).parameters
    assert {"batch", "optimizer", "train"} <= set(given)
    assert {type(parameter.default) for parameter in given.values()} <= {int, float, str, bool}
    assert set(TINY[example.name]) <= set(given)


def test_the_list_has_every_workload_in_a_group_and_the_readme_their_number() -> None:
    listed = of_workloads(examples())["examples"]
    groups = {key: listed.table(key)["name"] for key in ("examples", "sizes", "dtr")}
    assert {*chain(*groups.values())} == {example.name for example in examples()}
    assert sum(map(len, groups.values())) == len(examples())
    assert len(groups["dtr"]) == 27
    assert f"# the {len(examples())} built-in workloads" in (ROOT / "README.md").read_text()


def test_names_of_one_workload_say_so_and_no_others_have_one_summary() -> None:
    summaries = [example.summary for example in examples()]
    assert len({*summaries}) == len(summaries)
    same = [one for one in examples() if one.summary.startswith("The same as ")]
    assert len(same) == 5
    for one in same:
        other = find(one.summary.removeprefix("The same as ").partition(",")[0])
        assert (one.of, one.fixed, one.defaults) == (other.of, other.fixed, other.defaults)


def test_a_preset_is_its_workload_at_other_settings() -> None:
    for one in (example for example in examples() if example.of):
        family, built = (inspect.signature(find(name).load()).parameters for name in (one.of, one.name))
        assert one.fixed.keys() | one.defaults.keys() <= family.keys(), one.name
        assert [*built] == [name for name in family if name not in one.fixed]
        assert {name: p.default for name, p in built.items() if p.default != family[name].default} == {
            name: value for name, value in one.defaults.items() if value != family[name].default
        }
        for name, value in (*one.fixed.items(), *one.defaults.items()):
            assert type(value) is type(family[name].default), (one.name, name)


def test_all_models_of_dynamic_tensor_rematerialization_have_names() -> None:
    named = "resnet20 resnet32 resnet44 resnet56 resnet110 resnet1202 densenet100 inceptionv3 inceptionv4 unet "
    named += "lstm_encoder gru_encoder treelstm_old transformer_encoder unroll_gan "
    named += "dtr_lstm dtr_gru dtr_treelstm dtr_transformer "
    names = [*named.split(), *(f"tv_resnet{depth}" for depth in (18, 34, 50, 101, 152))]
    names += [f"tv_densenet{depth}" for depth in (121, 161, 169, 201)]
    assert len(names) == 28
    assert set(names) <= {example.name for example in examples()}


def test_every_workload_of_the_room_is_registered() -> None:
    found = set()
    for module in pkgutil.iter_modules(tensortide.examples.__path__, "tensortide.examples."):
        loaded = importlib.import_module(module.name)
        found |= {
            (module.name, name)
            for name in loaded.__all__
            if inspect.isfunction(member := getattr(loaded, name)) and "batch" in inspect.signature(member).parameters
        }
    assert found == {(example.module, example.name) for example in examples() if not example.of}


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(WorkloadError, match=r"no example 'resnet5'; did you mean .*resnet50.*\?"):
        find("resnet5")
    with pytest.raises(WorkloadError, match=r"did you mean gpt2"):
        find("GPT-2")
    with pytest.raises(WorkloadError, match="no example 'zzz'; tensortide capture --list shows all"):
        find("zzz")


def test_a_missing_package_is_answered_with_the_extra_that_brings_it() -> None:
    example = Example("mlp", "tensortide.examples.mlp", "", ("torch", "no_such_package"))
    assert not example.available
    assert example.missing == ("no_such_package",)
    with pytest.raises(MissingExtra, match=r"example 'mlp' needs no_such_package: pip install"):
        example.load()


def test_the_library_workloads_need_the_library_and_no_other_does() -> None:
    assert {e.name for e in examples() if "transformers" in e.requires} == {
        e.name for e in examples() if e.name.startswith("hf_")
    }
