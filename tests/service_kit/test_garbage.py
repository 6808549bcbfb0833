"""Loads without garbage collections: none begins inside, and none walks afterwards what was loaded."""

import gc
from collections.abc import Iterator

import pytest

from service_kit.process.garbage import loading_for_good


@pytest.fixture(autouse=True)
def collections_as_before() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_no_collection_begins_before_the_last_of_two_loads_has_ended() -> None:
    first, second = loading_for_good(), loading_for_good()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_loaded_objects_are_not_walked_again() -> None:
    with loading_for_good():
        loaded = [[number] for number in range(1_000)]
    assert not any(each is loaded for each in gc.get_objects()), "a frozen object is in no generation"


def test_collections_go_on_after_a_load_that_has_failed() -> None:
    with pytest.raises(OSError), loading_for_good():
        raise OSError("the disk has failed")
    assert gc.isenabled()


def test_a_process_without_collections_keeps_them_off() -> None:
    gc.disable()
    with loading_for_good():
        pass
    assert not gc.isenabled()
