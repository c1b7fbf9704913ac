"""One driver for all tests of a process. Each template is opened only once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.real_templates.driver import Driver, Model
from tests.real_templates.templates import Template

Open = Callable[[Template], Model]


@pytest.fixture(scope="session")
def driver() -> Iterator[Driver]:
    one = Driver()
    yield one
    one.close()


@pytest.fixture(scope="session")
def opened(driver: Driver) -> Open:
    """Returns a function that returns the model of a template."""
    models: dict[str, Model] = {}

    def model_of(template: Template) -> Model:
        if template.name not in models:
            models[template.name] = template.open(driver)
        return models[template.name]

    return model_of
