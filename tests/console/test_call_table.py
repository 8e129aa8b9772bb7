"""The table of calls: its description is valid and complete."""

from __future__ import annotations

from support.consoles import Consoles


def test_the_description_names_every_call_and_is_valid_by_its_own_schemas(office: Consoles) -> None:
    from jsonschema import Draft202012Validator

    said = office.ask("north", "GET", "/api/openapi.json").json
    assert said["openapi"].startswith("3.1")
    assert {"/api/status", "/api/runs", "/api/runs/{run}"} <= set(said["paths"])
    for schema in said["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    names = [call["operationId"] for path in said["paths"].values() for call in path.values()]
    assert len(names) == len(set(names))
