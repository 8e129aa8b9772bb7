"""Data dictionaries of other systems: what is taken, what stays out, what is asked; and codebooks as such dictionaries."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes.cli.commands.codebook import command
from blindbayes.codebook import Categorical, Codebook, Feature, IdPart, IdRecipe, Numeric, Origin, Text
from blindbayes.codebook.importers import EXPORTS, Choose, Imported, OpenQuestions, import_codebook, questions
from blindbayes.codebook.importers import sdmx as sdmx_lists
from blindbayes.errors import ConfigError

FOLDER = Path(__file__).parent / "dictionaries"


def line(feature: Feature) -> str:
    """A feature in one line, for comparison."""
    optional = "?" * feature.optional
    markers = f" except {'|'.join(feature.missing)}" if feature.missing else ""
    if isinstance(feature, Categorical):
        return f"{feature.name}{optional}: {'|'.join(feature.values)}{markers}"
    assert isinstance(feature, Numeric)
    unit = f" {feature.unit}" if feature.unit else ""
    return f"{feature.name}{optional}: {feature.low:g}..{feature.high:g} by {feature.precision:g}{unit}{markers}"


CASES: dict[str, tuple[dict[str, Any], list[str], set[str]]] = {
    "redcap/demographics.csv": (
        {"target": "sex", "bounds": {"bmi": (10, 80)}, "precision": {"bmi": 0.1}, "units": {"height": "cm"}},
        ["race___1: 0|1", "race___2: 0|1", "race___3: 0|1", "race____9: 0|1", "height: 130..215 by 0.01 cm",
         "weight: 35..200 by 1", "bmi?: 10..80 by 0.1"],
        {"study_id", "first_name", "dob", "comments"},
    ),
    "redcap/trial.csv": (
        {"target": "outcome", "missing": ["UNK"]},
        ["smoker: 1|0", "packs?: 0..10 by 0.1", "diabetes?: 1|0", "site: n|s|w", "pain: 0..100 by 1"],
        {"record_id", "email"},
    ),
    "redcap/validation.csv": (
        {"target": "answer"},
        ["v_integer?: -5..5 by 1", "v_number_2dp?: 0..1 by 0.01", "v_number_comma?: 0.5..99.5 by 0.1"],
        {"record_id", "v_phone", "v_mrn", "v_time", "v_zip", "v_file", "v_intro", "v_text", "v_calctext"},
    ),
    "redcap/api_metadata.csv": (
        {"target": "response", "bounds": {"psa": (0, 1000)}, "precision": {"psa": 0.1}},
        ["grade: 1|2|3", "psa?: 0..1000 by 0.1"],
        {"participant"},
    ),
    "redcap/survey.csv": (
        {"target": "readmitted"},
        ["q1: 1|2|3", "q2: 1|2|3", "vas: 0..100 by 1"],
        {"id", "carer"},
    ),
    "frictionless/categories.json": (
        {"target": "ripe"},
        ["fruit?: 0|1|2", "agreement?: low|medium|high", "score: 0..1 by 0.001"],
        {"id"},
    ),
    "frictionless/missing.json": (
        {"target": "class"},
        ["column1?: a|b", "column2?: -40..60 by 0.1 except -|NaN", "column3?: 0..10 by 1 except -99"],
        set(),
    ),
    "frictionless/package.json": (
        {"table": "observations", "target": "rain"},
        ["station?: A1|B2", "temperature?: -60..60 by 0.1"],
        {"when", "remark", "contact"},
    ),
    "frictionless/periodic.json": (
        {"target": "metal or nonmetal?", "bounds": {"atomic mass": (1, 300)}, "units": {"atomic mass": "u"}},
        ["atomic mass?: 1..300 by 0.1 u"],
        {"atomic number", "symbol", "name"},
    ),
    "frictionless/money.json": (
        {"target": "approved"},
        ["year?: 1990..2030 by 1", "share?: 0..100 by 0.1", "kind?: grant|loan|gift"],
        {"amount", "where"},
    ),
    "csvw/tree_operations.json": (
        {"target": "Species"},
        ["Trim Cycle?: Large Tree Routine Prune|Medium Tree Routine Prune", "Height?: 0..120.5 by 0.1"],
        {"GID", "On Street", "Inventory Date"},
    ),
    "csvw/public_sector_roles.json": (
        {"table": "senior-roles.csv", "target": "In Office"},
        ["Grade?: SCS1|SCS1A|SCS2|SCS3|SCS4", "FTE?: 0..1 by 0.001"],
        {"Post Unique Reference", "Name"},
    ),
    "csvw/inherited.json": (
        {"target": "status"},
        ["count one?: 0..99 by 1", "count two: 0..99 by 1 except -1"],
        {"tags"},
    ),
    "csvw/safe_penguins.json": (
        {"target": "species"},
        ["island: Biscoe|Dream|Torgersen", "bill_length_mm: 30..65 by 0.01", "body_mass_g?: 2000..7000 by 1"],
        {"penguin_id"},
    ),
    "csvw/dp_partitions.json": (
        {"target": "species"},
        ["sex?: MALE|FEMALE", "flipper_length_mm?: 150..250 by 0.1"],
        {"owner"},
    ),
    "ddi/satisfaction.xml": (
        {"target": "VOTE"},
        ["SATISF?: 1|2 except 9", "AGE?: 18..98 by 1 years except 99"],
        {"CASEID"},
    ),
    "ddi/household.xml": (
        {"target": "TENURE", "bounds": {"INCOME": (0, 50_000)}},
        ["ROOMS?: 1..20 by 1", "INCOME?: 0..50000 by 0.01"],
        {"HHWT", "INTDATE", "NOTE"},
    ),
    "ddi/files.xml": ({"table": "F2", "target": "ILL"}, ["DOSE?: 0..50 by 0.1 mg"], set()),
    "ddi/invalid.xml": ({"target": "REGION"}, ["TRUST?: 0..10 by 1 except 77|78|79"], {"WAGE", "BORN"}),
    "ddi/doctype.xml": ({"target": "MOVED"}, ["CITY?: 1|2", "KIDS?: 0..15 by 1"], set()),
    "sdmx/lists_3_0.xml": (
        {"columns": {"sex": "CL_SEX", "unit": "CL_AGE"}, "target": "sex", "missing": ["_U"]},
        ["unit?: Y|M|W|D|H"],
        set(),
    ),
    "sdmx/structure_2_1.xml": (
        {"target": "OBS_STATUS", "bounds": {"OBS_VALUE": (0, 1000)}},
        ["FREQ: A|Q|M", "CURRENCY: EUR|USD", "OBS_VALUE?: 0..1000 by 1"],
        {"TIME_PERIOD", "TITLE"},
    ),
    "sdmx/measures_3_0.xml": ({"target": "SEX"}, ["VISITS: 0..60 by 1"], {"AREA"}),
    "sdmx/lists.json": (
        {"columns": {"decimals": "CL_DECIMALS", "status": "CL_CONF_STATUS"}, "target": "status"},
        ["decimals?: 0|1|2"],
        set(),
    ),
    "sdmx/structure.json": (
        {"target": "SIZE", "bounds": {"TURNOVER": (0, 1e6)}},
        ["ACTIVITY: A|C", "TURNOVER?: 0..1e+06 by 0.1"],
        {"TIME_PERIOD"},
    ),
}  # fmt: skip


def read(case: str, answers: dict[str, Any]) -> Imported:
    return import_codebook(case.partition("/")[0], FOLDER / case, answers)


def again(codebook: Codebook, format: str, folder: Path) -> Codebook:
    """The codebook after an export and an import without a word from anybody."""
    path = folder / f"{format}.json"
    path.write_text(
        json.dumps(codebook.to_frictionless() if format == "frictionless" else codebook.to_csvw()), encoding="utf-8"
    )
    return import_codebook(format, path).codebook


@pytest.mark.parametrize("case", CASES)
def test_a_public_dictionary_becomes_a_codebook(case: str) -> None:
    answers, features, left_out = CASES[case]
    made = read(case, answers)
    assert [line(feature) for feature in made.codebook.features] == features
    assert set(made.left_out) == left_out
    assert made.codebook.provenance == "data dictionary"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("format", EXPORTS)
def test_an_imported_codebook_survives_every_round_trip(case: str, format: str, tmp_path: Path) -> None:
    codebook = read(case, CASES[case][0]).codebook
    assert again(codebook, format, tmp_path).sha256 == codebook.sha256
    codebook.to_toml(tmp_path / "codebook.toml")
    assert Codebook.from_toml(tmp_path / "codebook.toml") == codebook


def test_every_format_has_five_dictionaries() -> None:
    listed = [case.partition("/")[0] for case in CASES]
    assert all(listed.count(format) == 5 for format in ("redcap", "frictionless", "csvw", "ddi", "sdmx"))


@pytest.mark.parametrize("case", CASES)
def test_the_origin_is_recorded_and_hashed(case: str) -> None:
    codebook = read(case, CASES[case][0]).codebook
    assert codebook.origin is not None
    assert codebook.origin.sha256 == hashlib.sha256((FOLDER / case).read_bytes()).hexdigest()
    assert codebook.origin.format == case.partition("/")[0]
    other = Origin(codebook.origin.format, codebook.origin.specification, "0" * 64)
    assert Codebook.from_dict(
        {**codebook.to_dict(), "origin": {**codebook.to_dict()["origin"], "sha256": other.sha256}}
    ).sha256 != (codebook.sha256)


def test_all_questions_are_asked_at_once_with_the_flags_to_paste() -> None:
    with pytest.raises(OpenQuestions) as problem:
        read("redcap/api_metadata.csv", {})
    assert [question.flag for question in problem.value.questions] == ["--target NAME", "--bound psa=0:HIGH"]
    assert "With categories: grade, response" in str(problem.value)
    with pytest.raises(OpenQuestions, match="which labels does it hold"):
        read("frictionless/periodic.json", {"target": "name", "drop": ["atomic mass"]})


def test_statistics_of_rows_are_never_taken_for_bounds() -> None:
    """A minimum or maximum that an archive counted is a record of somebody."""
    with pytest.raises(OpenQuestions) as problem:
        read("ddi/household.xml", {"target": "TENURE"})
    assert [question.flag for question in problem.value.questions] == ["--bound INCOME=LOW:HIGH"]
    assert "918273" not in str(problem.value)
    assert "31" not in str(problem.value)


def test_questions_that_need_no_answer_are_reported() -> None:
    made = read("frictionless/categories.json", {"target": "ripe"})
    assert [question.flag for question in made.open] == ["--precision score=STEP", "--unit score=UNIT"]


def test_a_person_may_overrule_the_dictionary() -> None:
    answers = {"target": "outcome", "values": {"pain": ["0", "100"]}, "bounds": {"diabetes": (0, 1)}, "drop": ["site"]}
    made = read("redcap/trial.csv", answers)
    lines = [line(feature) for feature in made.codebook.features]
    assert lines == ["smoker: 1|0", "packs?: 0..10 by 0.1", "diabetes?: 0..1 by 0.001", "pain: 0|100"]
    assert made.left_out["site"] == "as asked for"
    kept = read("redcap/survey.csv", {"target": "readmitted", "keep": ["carer"]}).codebook
    assert line(kept.feature("carer")) == "carer: 1|2"


def test_a_table_must_be_chosen_where_there_are_several() -> None:
    with pytest.raises(Choose, match=r"describes 2 tables.*stations, observations"):
        read("frictionless/package.json", {"target": "rain"})
    with pytest.raises(Choose, match="has no resource with a schema 'rain'"):
        read("frictionless/package.json", {"target": "rain", "table": "rain"})
    with pytest.raises(Choose, match=r"--column NAME=LIST; known: CL_AGE, CL_SEX"):
        read("sdmx/lists_3_0.xml", {"target": "sex"})
    with pytest.raises(Choose, match="no code list 'CL_X'"):
        read("sdmx/lists_3_0.xml", {"target": "sex", "columns": {"sex": "CL_X"}})


def test_an_answer_about_no_column_is_refused() -> None:
    with pytest.raises(ConfigError, match="describes no column 'agee', which --bound names"):
        read("redcap/survey.csv", {"target": "readmitted", "bounds": {"agee": (0, 1)}})
    with pytest.raises(ConfigError, match="'bound' is not an answer"):
        read("redcap/survey.csv", {"bound": {}})


HEAD = (FOLDER / "redcap" / "survey.csv").read_text(encoding="utf-8-sig").splitlines()[0] + "\nid,f,,text,ID,,,,,,,,,,,,,\n"
SPANS = "<invalrng>{}</invalrng>"
LIST = "<codeBook>\n<dataDscr>\n<var name='X'>\n{}\n</var></dataDscr></codeBook>"


@pytest.mark.parametrize(
    ("format", "text", "message"),
    [
        ("redcap", HEAD + "Sex,f,,radio,Sex,\"1, a\",,,,,,,,,,,,\n", r"line 3, field 'Sex': a name has small letters"),
        ("redcap", HEAD + "sex,f,,radio,Sex,a|b,,,,,,,,,,,,\n", r"line 3, field 'sex', choices: a choice is a code"),
        ("redcap", HEAD + "sex,f,,color,Sex,,,,,,,,,,,,,\n", r"line 3, field 'sex': 'color' is not a field type"),
        ("redcap", HEAD + "id,f,,yesno,Sex,,,,,,,,,,,,,\n", r"line 3, field 'id': the name occurs twice"),
        ("redcap", HEAD + 'sex,"f\n', r"is not valid CSV \(line 3\)"),
        ("redcap", HEAD + 'sex,f,,radio,"Sex\nat\nbirth",a|b,,,,,,,,,,,,\n', r"line 3, field 'sex', choices"),
        ("redcap", "a,b\n1,2\n", r"line 1: the heading 'Variable / Field Name' is missing"),
        ("redcap", HEAD + "x,f,,radio,X,\"1, a | 1, b\",,,,,,,,,,,,\ny,f,,yesno,Y,,,,,,,,,,,,,\n", "line 3, field 'x': "),
        ("frictionless", '{"fields": [\n{"name": "x"\n}', r"is not valid JSON \(line 3\)"),
        ("frictionless", '{"fields": [{"type": "string"}]}', r"line 1, fields\[0\]: a field is a table with a name"),
        ("frictionless", '{"fields": [{"name": "x", "type": "number", "constraints": {"minimum": "low"}}]}', r"'x', minimum"),
        ("frictionless", '{"fields": [\n{"name": "}{", "type": "boolean"},\n{"name": "x", "categories": [[]]}]}',
         r"line 3, fields\[1\] 'x', categories or enum"),
        ("frictionless", '{"resources": [{"name": "t"}]}', "no resource with a schema is in the file"),
        ("frictionless", '{"resources": [{"name": "t", "schema": "https://example.org/s.json"}]}', "not fetched"),
        ("csvw", '{"tableSchema": {"columns": [{"datatype": "string"}]}}', r"line 1, columns\[0\]: a column is a table with"),
        ("csvw", '{"tableSchema":\n{"columns": [\n{"name": "x",\n"null": 1}]}}', r"line 3, columns\[0\] 'x', null"),
        ("csvw", '{"tableSchema": "schema.json"}', "not fetched"),
        ("ddi", "<codeBook>\n<dataDscr>\n<var/></dataDscr></codeBook>", r"line 3, field '': a variable \(var\) has a name"),
        ("ddi", LIST.format("<valrng><range min='a' max='2'/></valrng>"), r"line 3, field 'X', valrng: is not a number"),
        ("ddi", LIST.format(SPANS.format("<range min='0' max='99'/>" * 1001)), "line 3, field 'X': has more than 1,000"),
        ("ddi", LIST.format("".join(SPANS.format(f"<range min='{at}00' max='{at}99'/>") for at in range(11))), "1,000 missing"),
        ("ddi", "<codeBook>\n<dataDscr></codeBook>", r"is not valid XML: mismatched tag \(line 2\)"),
        ("ddi", "<DDIInstance/>", "the root of a DDI-Codebook is codeBook"),
        ("sdmx", "<mes:GenericData xmlns:mes='x'/>", "the root of a structure message is Structure"),
        ("sdmx", "\n<Structure><CodeLists><CodeList id='x'/></CodeLists></Structure>", "line 2: is a message of SDMX 2.0"),
        ("sdmx", '{\n"data": {"codelists": [1]}}', r"line 2, codelists\[0\]: must be a table"),
        ("sdmx", '{"data": {"dataStructures": [{"dataStructureComponents": {"attributeList": {"attributes": [\n'
         '{"id": "x", "localRepresentation": {"textFormat": {"dataType": "Double", "decimals": "two"}}}]}}}]}}',
         r"line 2, attributes\[0\] 'x', decimals: is not a number"),
    ],
)  # fmt: skip
def test_errors_name_the_line_and_the_field(format: str, text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "dictionary"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        import_codebook(format, path, {"target": "y" if "y,f" in text else None})


@pytest.mark.parametrize(
    ("format", "text", "place"),
    [
        ("redcap", HEAD + 'y,f,,radio,Y,"1, a | 1, b",,,,,,,,,,,,\nx,f,,yesno,X,,,,,,,,,,,,,\n', "line 3, field 'y'"),
        ("frictionless", '{"fields": [{"name": "y", "categories": ["a", "a"]}, {"name": "x", "type": "boolean"}]}', r"'y'"),
        ("frictionless", json.dumps({"fields": [{"name": "x" * 300, "type": "boolean"}]}), "at most 256 characters"),
        ("frictionless", '{"blindbayes": {"rows": 5}, "fields": [{"name": "y", "categories": ["a"]}]}', "no column to predict"),
        ("frictionless", '{"blindbayes": {"rows": 5}, "fields": [{"name": "y", "type": "boolean"}, {"name": "x", "type": '
         '"boolean"}]}', "data dictionary .*unknown field `rows`"),
    ],
)  # fmt: skip
def test_errors_of_the_class_column_and_of_the_table_name_their_place(
    format: str, text: str, place: str, tmp_path: Path
) -> None:
    (tmp_path / "dictionary").write_text(text)
    with pytest.raises(ConfigError, match=place):
        import_codebook(format, tmp_path / "dictionary", {"target": "y"})


def penguins(**column: Any) -> Imported:
    """A column beside another one, as CSVW-SAFE."""
    columns = [{"name": "x", **column}, {"name": "y", "datatype": "boolean"}, {"virtual": True, "propertyUrl": "schema:name"}]
    return import_codebook("csvw", json.dumps({"tableSchema": {"columns": columns}}).encode(), {"target": "y"})


SPECIES = [{"predicate": {"partitionValue": "Adelie"}, "maxLength": 3}, {"predicate": {"partitionValue": "Gentoo"}}]
HALVES = [{"predicate": {"lowerBound": 0, "upperBound": 5}}, {"predicate": {"lowerBound": 5, "upperBound": 9}}]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ({"keyValues": ["Adelie", "Gentoo"], "exhaustiveKeys": True}, "x?: Adelie|Gentoo"),
        ({"keyValues": [3, 4], "datatype": "integer"}, "x?: 3|4"),
        ({"partitions": SPECIES}, "x?: Adelie|Gentoo"),
        ({"partitions": HALVES, "datatype": "integer"}, "x?: 0..9 by 1"),
        ({"csvw-eo:keyValues": ["Adelie", "Gentoo"]}, "x?: Adelie|Gentoo"),
    ],
)
def test_the_present_terms_of_csvw_safe_give_values_and_bounds(column: dict[str, Any], expected: str) -> None:
    assert [line(feature) for feature in penguins(**column).codebook.features] == [expected]


def test_keys_that_are_not_all_are_no_closed_list() -> None:
    with pytest.raises(ConfigError, match="leaves no column to predict from"):
        penguins(keyValues=["Adelie"], exhaustiveKeys=False)
    with pytest.raises(OpenQuestions, match="--bound x=LOW:HIGH"):
        penguins(partitions=[HALVES[0], {"predicate": {"partitionValue": 7}}], exhaustiveKeys=False, datatype="integer")


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_redcap_dictionary_may_have_the_separator_of_its_users_profile(separator: str, tmp_path: Path) -> None:
    rows = list(csv.reader((FOLDER / "redcap" / "survey.csv").read_text(encoding="utf-8-sig").splitlines()))
    with (tmp_path / "d.csv").open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=separator).writerows(rows)
    made = import_codebook("redcap", tmp_path / "d.csv", {"target": "readmitted"})
    assert made.codebook.features == read("redcap/survey.csv", {"target": "readmitted"}).codebook.features


@pytest.mark.parametrize(
    "case", ["frictionless/categories.json", "csvw/inherited.json", "sdmx/structure.json", "ddi/files.xml"]
)
def test_a_byte_order_mark_is_no_content(case: str, tmp_path: Path) -> None:
    (tmp_path / "d").write_bytes(b"\xef\xbb\xbf" + (FOLDER / case).read_bytes())
    made = import_codebook(case.partition("/")[0], tmp_path / "d", CASES[case][0])
    assert [line(feature) for feature in made.codebook.features] == CASES[case][1]


def fields_of(format: str, document: Any, tmp_path: Path, **answers: Any) -> tuple[list[str], dict[str, str]]:
    path = tmp_path / "document"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    made = import_codebook(format, path, {"target": "y", **answers})
    return [line(feature) for feature in made.codebook.features], dict(made.left_out)


LABELLED: dict[str, Any] = {"name": "y", "type": "string", "constraints": {"enum": ["a", "b"]}}


def test_a_single_unique_key_of_a_table_schema_is_an_identifier(tmp_path: Path) -> None:
    numbers = [{"name": name, "type": "integer", "constraints": {"minimum": 0, "maximum": 9}} for name in ("id", "x", "z")]
    schema = {"fields": [*numbers, LABELLED], "uniqueKeys": [["id"], ["x", "z"]]}
    assert fields_of("frictionless", schema, tmp_path) == (
        ["x?: 0..9 by 1", "z?: 0..9 by 1"],
        {"id": "a key, or unique: an identifier"},
    )


def test_what_csvw_says_of_a_group_a_default_a_percentage_and_an_encoded_name_is_followed(tmp_path: Path) -> None:
    def number(title: str, **more: Any) -> dict[str, Any]:
        return {
            "titles": title,
            "datatype": {"base": "decimal", "minimum": 0, "maximum": 9, **more.pop("datatype", {})},
            **more,
        }

    columns = [
        number("x", datatype={"format": {"pattern": "#,##0.00", "groupChar": ","}}),
        number("share", datatype={"format": "0.0%"}),
        number("filled", default="5"),
        number("On Street"),
        {"titles": "y", "datatype": {"base": "string", "format": "a|b"}},
    ]
    group = {"tableSchema": {"columns": columns, "primaryKey": "On%20Street"}, "tables": [{"url": "a.csv"}, {"url": "b.csv"}]}
    features, left_out = fields_of("csvw", group, tmp_path, table="b.csv")
    assert features == ["x?: 0..9 by 0.001"]
    assert [left_out[name][:20] for name in ("share", "filled", "On Street")] == [
        "its cells are percen", "an empty cell stands", "a key, or the privac",
    ]  # fmt: skip


def test_a_table_schema_that_lists_example_files_is_still_the_schema(tmp_path: Path) -> None:
    """As schema.data.gouv.fr publishes them."""
    schema = {"fields": [{"name": "x", "type": "boolean"}, LABELLED], "resources": [{"path": "https://example.org/ok.csv"}]}
    assert fields_of("frictionless", schema, tmp_path)[0] == ["x?: false|true"]


def test_a_ddi_variable_of_no_stated_type_stays_out(tmp_path: Path) -> None:
    listed = "<catgry><catValu>1</catValu></catgry><catgry><catValu>2</catValu></catgry>"
    variables = {"y": listed, "remark": "<labl>Remark</labl>", "x": "<valrng><range min='0' max='9'/></valrng>"}
    text = "".join(f"<var name='{name}'>{inner}</var>" for name, inner in variables.items())
    text += "<var name='place' representationType='other'><varFormat type='numeric'/></var>"
    features, left_out = fields_of("ddi", f"<codeBook><dataDscr>{text}</dataDscr></codeBook>", tmp_path)
    assert (features, set(left_out)) == (["x?: 0..9 by 0.001"], {"remark", "place"})


def sdmx_list(agency: str, version: str, *codes: str) -> str:
    inner = "".join(f'<Code id="{code}"/>' for code in codes)
    return f'<Codelist id="CL_AREA" agencyID="{agency}" version="{version}">{inner}</Codelist>'


def enumeration(agency: str, version: str) -> str:
    return f'<Enumeration><Ref id="CL_AREA" agencyID="{agency}" version="{version}"/></Enumeration>'


CONCEPT = (
    '<ConceptIdentity><Ref id="{}" maintainableParentID="CS" maintainableParentVersion="1.0" agencyID="X"/></ConceptIdentity>'
)


def sdmx(lists: str, components: str, more: str = "") -> str:
    structure = f'<DataStructure id="D" agencyID="X">{components}</DataStructure>'
    return f"<Structure>{lists}{more}<DataStructures>{structure}</DataStructures></Structure>"


def dimension(name: str, representation: str) -> str:
    local = f"<LocalRepresentation>{representation}</LocalRepresentation>" if representation else ""
    return f'<Dimension id="{name}">{CONCEPT.format(name)}{local}</Dimension>'


@pytest.mark.parametrize("other", [("X", "2.0"), ("Z", "1.0")], ids=["versions", "agencies"])
def test_an_sdmx_component_takes_the_list_of_its_own_version_and_agency(other: tuple[str, str], tmp_path: Path) -> None:
    lists = sdmx_list("X", "1.0", "1", "2") + sdmx_list(*other, "7", "8", "9")
    parts = dimension("y", enumeration("X", "1.0")) + dimension("z", enumeration(*other))
    for message in (sdmx(lists, parts), sdmx(lists, parts).replace("1.0", "1.0.0")):
        (tmp_path / "d.xml").write_text(message)
        book = import_codebook("sdmx", tmp_path / "d.xml", {"target": "y"}).codebook
        assert (book.classes, [line(each) for each in book.features]) == (("1", "2"), ["z: 7|8|9"])
    (tmp_path / "d.xml").write_text(sdmx(lists, ""))
    with pytest.raises(Choose, match=r"or several.*known: X:CL_AREA\(1.0\), "):
        import_codebook("sdmx", tmp_path / "d.xml", {"columns": {"y": "CL_AREA"}})
    answers: dict[str, Any] = {"columns": {"y": "X:CL_AREA(1.0)", "z": f"{other[0]}:CL_AREA({other[1]})"}, "target": "y"}
    assert [line(each) for each in import_codebook("sdmx", tmp_path / "d.xml", answers).codebook.features] == ["z?: 7|8|9"]


def test_an_sdmx_component_without_id_or_representation_has_those_of_its_concept(tmp_path: Path) -> None:
    core = f'<Concept id="y"><CoreRepresentation>{enumeration("X", "1.0")}</CoreRepresentation></Concept>'
    scheme = f'<ConceptScheme id="CS" agencyID="X" version="1.0">{core}</ConceptScheme>'
    time = f"<TimeDimension>{CONCEPT.format('TIME_PERIOD')}</TimeDimension>"
    parts = (dimension("y", "") + dimension("z", enumeration("X", "1.0"))).replace(' id="y"', "", 1)
    features, left_out = fields_of("sdmx", sdmx(sdmx_list("X", "1.0", "1", "2"), parts + time, scheme), tmp_path)
    assert (features, set(left_out)) == (["z: 1|2"], {"TIME_PERIOD"})
    urn = "urn:sdmx:org.sdmx.infomodel.{}={}"
    listed = {"enumeration": urn.format("codelist.Codelist", "X:L(1.0)")}
    concepts = [{"id": "y", "coreRepresentation": listed}]
    dimensions = [
        {"conceptIdentity": urn.format("conceptscheme.Concept", "X:CS(1.0).y")},
        {"id": "z", "localRepresentation": listed},
    ]
    data = {
        "codelists": [{"id": "L", "agencyID": "X", "codes": [{"id": "1"}, {"id": "2"}]}],
        "conceptSchemes": [{"id": "CS", "agencyID": "X", "concepts": concepts}],
        "dataStructures": [{"id": "D", "dataStructureComponents": {"dimensionList": {"dimensions": dimensions}}}],
    }
    assert fields_of("sdmx", {"data": data}, tmp_path) == (["z: 1|2"], {})


def test_a_person_chooses_among_several_data_structures(tmp_path: Path) -> None:
    parts = [dimension("y", enumeration("X", "1.0")) + dimension(name, enumeration("X", "1.0")) for name in ("a", "b")]
    message = sdmx(sdmx_list("X", "1.0", "1", "2"), parts[0], f'<DataStructure id="E" agencyID="X">{parts[1]}</DataStructure>')
    with pytest.raises(Choose, match=r"describes 2 tables.*known: E, D"):
        fields_of("sdmx", message, tmp_path)
    assert fields_of("sdmx", message, tmp_path, table="E")[0] == ["b: 1|2"]


def numbers(format: str, fields: dict[str, str]) -> Any:
    """A dictionary of numbers, name by label, and a class column y."""
    if format == "redcap":
        rows = [f"{name},f,,text,{label},,,integer,0,9,,,,,,,," for name, label in fields.items()]
        return HEAD.replace("id,f", "record,f") + "\n".join([*rows, "y,f,,yesno,Y,,,,,,,,,,,,,"]) + "\n"
    if format == "frictionless":
        rules = {"type": "integer", "constraints": {"minimum": 0, "maximum": 9}}
        return {"fields": [*({"name": name, "title": label, **rules} for name, label in fields.items()), LABELLED]}
    if format == "csvw":
        kind = {"base": "integer", "minimum": 0, "maximum": 9}
        listed = [{"titles": name, "dc:description": label, "datatype": kind} for name, label in fields.items()]
        return {"tableSchema": {"columns": [*listed, {"name": "y", "datatype": "boolean"}]}}
    if format == "ddi":
        form = "<valrng><range min='0' max='9' UNITS='INT'/></valrng><varFormat type='numeric'/>"
        listed = [f"<var name='{name}'><labl>{label}</labl>{form}</var>" for name, label in fields.items()]
        codes = "<catgry><catValu>1</catValu></catgry><catgry><catValu>2</catValu></catgry>"
        return f"<codeBook><dataDscr>{''.join(listed)}<var name='y'>{codes}</var></dataDscr></codeBook>"
    form = {"format": {"dataType": "Integer", "minValue": 0, "maxValue": 9}}
    listed = [{"id": name, "localRepresentation": form} for name in fields]
    listed.append({"id": "y", "localRepresentation": {"enumeration": "urn=X:L(1.0)"}})
    parts = {"dataStructureComponents": {"dimensionList": {"dimensions": listed}}}
    lists = {"id": "L", "agencyID": "X", "codes": [{"id": "1"}, {"id": "2"}]}
    return {"data": {"codelists": [lists], "dataStructures": [{"id": "d", **parts}]}}


@pytest.mark.parametrize("format", ["redcap", "frictionless", "csvw", "ddi", "sdmx"])
def test_a_number_that_reads_like_an_identifier_stays_out(format: str, tmp_path: Path) -> None:
    """Dictionaries mark few identifiers: IPUMS describes CASEID and SERIAL as plain numbers."""
    named = dict.fromkeys(("id", "caseid", "patient_id", "id_hogar", "mrn", "account_no"), "")
    labelled = {
        "ident": "Identifier",
        "hld": "Household id",
        "v1": "Personen-ID",
        "ser": "Household serial number",
        "cps": "CPSID (person record)",
    }
    taken = {"covid": "Covid test", "paid": "Amount paid", "rooms": "Number of rooms", "size": "Household number of persons"}
    fields = {**named, **(labelled if format != "sdmx" else {}), **taken}
    features, left_out = fields_of(format, numbers(format, fields), tmp_path)
    assert [each.partition("?")[0].partition(":")[0] for each in features] == list(taken)
    assert {name for name, why in left_out.items() if "identifier" in why} == {*fields} - {*taken} | {
        *(["record"] if format == "redcap" else [])
    }
    kept = fields_of(format, numbers(format, fields), tmp_path, keep=["id"], bounds={"mrn": (0, 5)})[0]
    assert kept[0].endswith(": 0..9 by 1")
    assert any(each.startswith("mrn") and ": 0..5 " in each for each in kept)


def test_what_a_person_calls_a_feature_is_no_guess(tmp_path: Path) -> None:
    """In a dictionary of our own, and in an exported codebook, somebody has said that the column is a number."""
    book = Codebook("y", ("a", "b"), (Numeric("id", 0, 9), Numeric("n", 0, 9, description="Serial number")))
    for format in EXPORTS:
        assert again(book, format, tmp_path) == book
    (tmp_path / "d.csv").write_text("name,kind,values,low,high\ny,categorical,a|b,,\nid,numeric,,0,9\n")
    assert import_codebook("dictionary", tmp_path / "d.csv", {"target": "y"}).codebook.names == ("id",)


@pytest.mark.parametrize(
    ("inner", "flag"),
    [
        ('<valrng><range min="9.30292564259874" max="500"/></valrng>', "--bound X=LOW:500"),
        ('<valrng><range min="0" max="31"/></valrng><sumStat type="max"> 31.0 </sumStat>', "--bound X=0:HIGH"),
        ('<valrng><range min="18" max="97"/></valrng><sumStat type="min">18</sumStat><sumStat type="max">97</sumStat>',
         "--bound X=LOW:HIGH"),
    ],
)  # fmt: skip
def test_a_valid_range_counted_from_rows_is_asked_for(inner: str, flag: str) -> None:
    """Exports of statistics offices write the smallest and largest value of the file into valrng."""
    form = '<varFormat type="numeric"/>'
    text = f'<codeBook><dataDscr><var name="X" dcml="0">{inner}{form}</var><var name="y"><catgry><catValu>1</catValu></catgry>'
    with pytest.raises(OpenQuestions, match="repeats a value counted from the rows") as problem:
        import_codebook("ddi", (text + "</var></dataDscr></codeBook>").encode(), {"target": "y"})
    assert [question.flag for question in problem.value.questions] == [flag]
    assert "9.3" not in str(problem.value)


def test_a_declared_range_beside_statistics_of_other_values_is_taken() -> None:
    inner = '<valrng><range min="0" max="120"/></valrng><sumStat type="min">18</sumStat><sumStat type="max">.</sumStat>'
    text = f'<codeBook><dataDscr><var name="X" dcml="0">{inner}</var><var name="y"><catgry><catValu>1</catValu></catgry>'
    book = import_codebook("ddi", (text + "</var></dataDscr></codeBook>").encode(), {"target": "y"}).codebook
    assert [line(feature) for feature in book.features] == ["X?: 0..120 by 1"]


def test_a_question_about_a_number_names_the_codes_that_its_dictionary_labels() -> None:
    codes = "".join(
        f"<catgry><catValu>{code}</catValu><labl>{label}</labl></catgry>" for code, label in [(98, "98+"), (99, "NIU")]
    )
    text = f'<codeBook><dataDscr><var name="AGE" intrvl="contin">{codes}</var></dataDscr></codeBook>'
    with pytest.raises(OpenQuestions, match=r"labels the codes 98 \(98\+\), 99 \(NIU\): --values"):
        import_codebook("ddi", text.encode())


def test_choices_of_older_redcap_exports_are_separated_by_a_backslash_and_n() -> None:
    row = r'y,f,,radio,Y,"1, Yes, at once \n 0, No",,,,,,,,,,,,'
    made = import_codebook("redcap", f"{HEAD}{row}\nx,f,,yesno,X,,,,,,,,,,,,,\n".encode(), {"target": "y"})
    assert made.codebook.classes == ("1", "0")


def test_a_csvw_column_of_a_blank_title_has_its_name_and_the_subject_of_rows_is_a_key(tmp_path: Path) -> None:
    kind = {"base": "integer", "minimum": 0, "maximum": 9}
    columns = [{"name": name, "titles": " ", "datatype": kind} for name in ("tree", "height")]
    schema = {"columns": [*columns, {"name": "y", "datatype": "boolean"}], "aboutUrl": "http://example.org/tree#{tree}"}
    assert fields_of("csvw", {"tableSchema": schema}, tmp_path)[0] == ["height?: 0..9 by 1"]
    schema["aboutUrl"] = "http://example.org/{tree}/{height}"  # rows of a table of cells
    assert len(fields_of("csvw", {"tableSchema": schema}, tmp_path)[0]) == 2


BOMB = """<!DOCTYPE codeBook [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<codeBook><dataDscr><var name="&b;"/></dataDscr></codeBook>"""
FILE = """<!DOCTYPE codeBook [<!ENTITY x SYSTEM "file:///etc/hostname">]>
<codeBook><dataDscr><var name="&x;"/></dataDscr></codeBook>"""
SKIPPED = """<!DOCTYPE codeBook SYSTEM "x.dtd"><codeBook><dataDscr><var name="X"><labl>&x;</labl></var></dataDscr></codeBook>"""


DEFAULTS = """<!DOCTYPE codeBook [<!ATTLIST var name CDATA "aaaaaaaaaa">]><codeBook><dataDscr><var/></dataDscr></codeBook>"""


@pytest.mark.parametrize("text", [BOMB, FILE, SKIPPED, DEFAULTS])
def test_entities_and_defaults_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "d.xml").write_text(text)
    with pytest.raises(ConfigError, match="declares or uses entities or defaults"):
        import_codebook("ddi", tmp_path / "d.xml")


def test_facts_of_the_wrong_size_or_type_are_no_crash(tmp_path: Path) -> None:
    form = {"dataType": "Decimal", "minValue": 0, "maxValue": 9, "decimals": -400}
    dimensions = [{"id": name, "localRepresentation": {"format": form}} for name in ("x", "y")]
    structure = {"id": "d", "dataStructureComponents": {"dimensionList": {"dimensions": dimensions}}}
    (tmp_path / "d.json").write_text(json.dumps({"data": {"dataStructures": [structure]}}))
    made = import_codebook("sdmx", tmp_path / "d.json", {"target": "x", "values": {"x": ("1", "2")}})
    assert made.codebook.numeric("y").precision == 1
    columns = [{"name": name, "datatype": "integer", "publicPartitions": 5} for name in ("x", "y")]
    (tmp_path / "c.json").write_text(json.dumps({"tableSchema": {"columns": columns}}))
    with pytest.raises(OpenQuestions, match="between which public bounds"):
        import_codebook("csvw", tmp_path / "c.json", {"target": "x", "values": {"x": ("1", "2")}})


def test_depth_of_xml_is_limited(tmp_path: Path) -> None:
    (tmp_path / "d.xml").write_text("<codeBook>" + "<a>" * 100 + "</a>" * 100 + "</codeBook>")
    with pytest.raises(ConfigError, match="elements within elements"):
        import_codebook("ddi", tmp_path / "d.xml")


# -- SPSS and Stata ----------------------------------------------------------------------------------------------------


def spss(path: Path, kind: int) -> Path:
    """Five files with rows that nobody may see."""
    pyreadstat = pytest.importorskip("pyreadstat", reason="the spss extra is not installed")
    import pandas as pd

    frame = pd.DataFrame({"ill": [1.0, 2.0], "sex": ["f", "m"], "age": [31.0, 47.0], "note": ["secret", "words"]})
    labels: dict[str, Any] = {"ill": {1: "yes", 2: "no", 9: "unknown"}, "sex": {"f": "female", "m": "male"}}
    more: dict[str, Any] = {}
    if kind == 1:
        more = {"missing_ranges": {"ill": [9], "age": [{"lo": -3, "hi": -1}]}, "variable_measure": {"age": "scale"}}
    if kind == 2:
        frame["day"] = pd.to_datetime(["2020-01-01", "2020-01-02"]).date
        more = {"variable_format": {"age": "F3.0"}}
    if kind == 3:
        labels["age"] = {-1: "refused"}
        more = {"missing_ranges": {"age": [-1]}, "variable_measure": {"ill": "nominal"}}
    if kind == 4:
        frame["ill"] = frame["ill"].astype("int8")
        pyreadstat.write_dta(frame, path, variable_value_labels={"ill": {1: "yes", 2: "no"}})
        return path
    pyreadstat.write_sav(
        frame,
        path,
        variable_value_labels=labels,
        column_labels=["Illness", "Sex", "Age", "Note", "Day"][: len(frame.columns)],
        **more,
    )
    return path


@pytest.mark.parametrize(
    ("kind", "name", "expected", "left_out"),
    [
        (0, "plain.sav", ["sex?: f|m", "age?: 0..120 by 0.01"], {"note"}),
        (1, "missing.sav", ["sex?: f|m", "age?: 0..120 by 0.01 except -3|-2|-1"], {"note"}),
        (2, "dates.zsav", ["sex?: f|m", "age?: 0..120 by 1"], {"note", "day"}),
        (3, "refused.sav", ["sex?: f|m", "age?: 0..120 by 0.01 except -1"], {"note"}),
        (4, "stata.dta", ["age?: 0..120 by 0.1"], {"note", "sex"}),
    ],
)
def test_labels_of_spss_and_stata_files_become_a_codebook(
    kind: int, name: str, expected: list[str], left_out: set[str], tmp_path: Path
) -> None:
    path = spss(tmp_path / name, kind)
    made = import_codebook("spss", path, {"target": "ill", "bounds": {"age": (0, 120)}})
    assert [line(feature) for feature in made.codebook.features] == expected
    assert set(made.left_out) == left_out
    assert made.codebook.classes == (("1", "2") if kind in (1, 4) else ("1", "2", "9"))
    for format in EXPORTS:
        assert again(made.codebook, format, tmp_path).sha256 == made.codebook.sha256
    assert "secret" not in made.codebook.to_toml()


def test_extended_missing_values_of_stata_and_labelled_scales_of_spss_are_followed(tmp_path: Path) -> None:
    """Stata writes .a to .z into a text file; SPSS calls a labelled number a scale unless somebody says otherwise."""
    pyreadstat = pytest.importorskip("pyreadstat", reason="the spss extra is not installed")
    import pandas as pd

    frame = pd.DataFrame({"ill": [1, 2], "dose": [1, 2]})
    labels = {"ill": {1: "yes", 2: "no"}, "dose": {9: "nine or more", "a": "refused", "z": "not asked"}}
    pyreadstat.write_dta(frame, tmp_path / "a.dta", variable_value_labels=labels, missing_user_values={"dose": ["a", "z"]})
    made = import_codebook("spss", tmp_path / "a.dta", {"target": "ill", "bounds": {"dose": (0, 9)}})
    assert made.codebook.feature("dose").missing == (".a", ".z")
    listed = import_codebook("spss", tmp_path / "a.dta", {"target": "ill", "values": {"dose": ["1", "2", "9"]}}).codebook
    assert line(listed.features[0]) == "dose?: 1|2|9 except .a|.z"
    pyreadstat.write_sav(frame, tmp_path / "a.sav", variable_value_labels={"ill": {1: "yes", 2: "no"}, "dose": {1: "low"}},
        variable_measure={"dose": "scale"})  # fmt: skip
    with pytest.raises(OpenQuestions, match=r"labels the codes 1 \(low\)"):
        import_codebook("spss", tmp_path / "a.sav", {"target": "ill"})


def test_open_ranges_of_missing_values_leave_a_column_out(tmp_path: Path) -> None:
    """LOWEST THRU -1 of SPSS has an end that JSON cannot write."""
    pyreadstat = pytest.importorskip("pyreadstat", reason="the spss extra is not installed")
    import pandas as pd

    frame = pd.DataFrame({"ill": [1.0], "age": [1.0], "old": [1.0], "dose": [1.0]})
    ranges = {"age": [{"lo": float("-inf"), "hi": -1}], "old": [{"lo": 90, "hi": float("inf")}]}
    pyreadstat.write_sav(frame, tmp_path / "a.sav", variable_value_labels={"ill": {1: "yes", 2: "no"}}, missing_ranges=ranges)
    made = import_codebook("spss", tmp_path / "a.sav", {"target": "ill", "bounds": {"dose": (0, 9)}})
    assert set(made.left_out) == {"age", "old"}
    assert made.codebook.names == ("dose",)


def test_labelled_codes_in_an_open_range_are_the_markers_of_a_closed_list(tmp_path: Path) -> None:
    """Surveys declare LOWEST THRU -1 and label each code below zero."""
    pyreadstat = pytest.importorskip("pyreadstat", reason="the spss extra is not installed")
    import pandas as pd

    labels = {name: {-9: "refused", -1.5: "skipped", 0: "no", 1: "yes"} for name in ("ill", "dose")}
    ranges = {"dose": [{"lo": float("-inf"), "hi": -1}]}
    frame = pd.DataFrame({"ill": [1.0], "dose": [1.0]})
    pyreadstat.write_sav(frame, tmp_path / "a.sav", variable_value_labels=labels, missing_ranges=ranges)
    answers: dict[str, Any] = {"target": "ill", "values": {"ill": ["0", "1"]}}
    assert [line(each) for each in import_codebook("spss", tmp_path / "a.sav", answers).codebook.features] == [
        "dose?: 0|1 except -9|-1.5"
    ]
    codes = "".join(f"<catgry><catValu>{code}</catValu></catgry>" for code in ("-9", "-2", "-1", "0", "1", "none"))
    spans = "<invalrng><range max='-5'/><range min='-7' max='-1.5'/></invalrng>"
    variables = f"<var name='ill'>{codes}</var><var name='dose'>{spans}{codes}</var>"
    message = f"<codeBook><dataDscr>{variables}</dataDscr></codeBook>".encode()
    assert [line(each) for each in import_codebook("ddi", message, answers).codebook.features] == [
        "dose?: -1|0|1|none except -9|-2"
    ]


def test_ddi_of_version_1_is_read_without_its_document_type() -> None:
    """As Nesstar and ICPSR wrote it: the DTD stands elsewhere and is not fetched."""
    head = '<?xml version="1.0" encoding="ISO-8859-1"?>\r\n<!DOCTYPE codeBook SYSTEM "http://localhost:9/Version1-2-2.dtd">\r\n'
    codes = "<catgry><catValu>1</catValu><labl>M\xe4nner</labl></catgry><catgry><catValu>2</catValu></catgry>"
    codes += '<catgry missing="Y" missType="refused"><catValu>9</catValu></catgry>'
    y = f'<var ID="V1" name="SEX"><location StartPos="1" width="1"/>{codes}<varFormat type="numeric" schema="SPSS"/></var>'
    x = '<var ID="V2" name="AGE" intrvl="contin" dcml="0"><valrng><range UNITS="INT" min="0" max="99"/></valrng></var>'
    text = f'{head}<codeBook version="1.2.2"><stdyDscr/><dataDscr>{y}{x}</dataDscr></codeBook>'
    book = import_codebook("ddi", text.encode("latin-1"), {"target": "SEX"}).codebook
    assert (book.classes, [line(each) for each in book.features]) == (("1", "2"), ["AGE?: 0..99 by 1"])


def test_single_valid_values_widen_a_ddi_range() -> None:
    inner = "<valrng><range min='0' max='90'/><item VALUE='97'/></valrng>"
    text = f"<codeBook><dataDscr><var name='x'>{inner}</var><var name='y'><catgry><catValu>1</catValu></catgry></var>"
    book = import_codebook("ddi", f"{text}</dataDscr></codeBook>".encode(), {"target": "y"}).codebook
    assert [line(each) for each in book.features] == ["x?: 0..97 by 0.01"]


def test_the_origin_of_a_data_file_does_not_depend_on_its_rows(tmp_path: Path) -> None:
    """A hash of the file would confirm a guess of its rows."""
    pyreadstat = pytest.importorskip("pyreadstat", reason="the spss extra is not installed")
    import pandas as pd

    origins = set()
    for number in (1.0, 2.0):
        frame = pd.DataFrame({"ill": [number], "age": [number]})
        pyreadstat.write_sav(frame, tmp_path / "a.sav", variable_value_labels={"ill": {1: "yes", 2: "no"}})
        book = import_codebook("spss", tmp_path / "a.sav", {"target": "ill", "bounds": {"age": (0, 9)}}).codebook
        assert book.origin is not None
        origins.add(book.origin.sha256)
    assert len(origins) == 1


def test_a_file_that_crashes_the_library_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ReadStat is C: some damaged files end the process that reads them."""
    (tmp_path / "pyreadstat.py").write_text("import os\ndef read_sav(*_, **__):\n    os.abort()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "a.sav").write_bytes(b"$FL2")
    with pytest.raises(ConfigError, match=r"cannot be read as \.sav: it is damaged"):
        import_codebook("spss", tmp_path / "a.sav")


def test_a_column_without_a_format_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library has None for what a damaged or foreign file leaves out."""
    (tmp_path / "pyreadstat.py").write_text(
        "from types import SimpleNamespace as S\n"
        "facts = S(column_names=['x', 'y'], column_names_to_labels={'x': None}, variable_value_labels={'y': {1: 'a'}},\n"
        "          original_variable_types={'x': None}, readstat_variable_types={'x': None}, variable_measure={'y': None},\n"
        "          missing_ranges={})\n"
        "read_sav = lambda *_, **__: (None, facts)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "a.sav").write_bytes(b"$FL2")
    book = import_codebook("spss", tmp_path / "a.sav", {"target": "y", "bounds": {"x": (0, 9)}}).codebook
    assert [line(feature) for feature in book.features] == ["x?: 0..9 by 0.001"]


def test_a_file_that_is_none_of_spss_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyreadstat", reason="the spss extra is not installed")
    (tmp_path / "a.sav").write_bytes(b"$FL2@(#) nothing")
    with pytest.raises(ConfigError, match=r"cannot be read as \.sav"):
        import_codebook("spss", tmp_path / "a.sav")
    with pytest.raises(ConfigError, match="not an SPSS or Stata file by its name"):
        import_codebook("spss", FOLDER / "README.md")
    with pytest.raises(ConfigError, match="does not exist"):
        import_codebook("spss", tmp_path / "absent.sav")


# -- export ------------------------------------------------------------------------------------------------------------

FULL = Codebook(
    "outcome",
    ("no", "yes|maybe", "a.b"),
    (
        Categorical("sex", ("f", "m"), labels={"f": "female", "m": "female"}, missing=("x", ""), description="as registered"),
        Categorical("one", ("only",), optional=True),
        Categorical("odd", ("(a|b)", "^x$", "c\\d", "rest"), other="rest"),
        Numeric("age", 0, 120, optional=True, unit="years", missing=("-9",)),
        Numeric("crp", 0.0, 1000, 0.1, bins=13, spacing="log"),
        Numeric("bmi", 10, 80, 0.5, edges=(18.5, 25.0, 30.0)),
        Text("letter", ("free", "win"), model="bernoulli", max_words=60, optional=True),
        Text("post", buckets=64),
    ),
    max_rows=10**6,
    missing=("", "?"),
    variance_floor=0.5,
    identifier=IdRecipe((IdPart("mail", "email"), IdPart("phone", "phone", "GB"))),
    expected_rows=500,
    order=("crp", "age"),
)


@pytest.mark.parametrize("format", EXPORTS)
def test_everything_a_codebook_says_survives_the_round_trip(format: str, tmp_path: Path) -> None:
    assert again(FULL, format, tmp_path) == FULL
    assert again(FULL, format, tmp_path).sha256 == FULL.sha256


names = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=8)
listed = st.lists(names, min_size=1, max_size=5, unique=True)
categoricals = st.builds(lambda values, optional: ("c", values, optional), listed, st.booleans())
numerics = st.builds(
    lambda low, width, digits, bins: ("n", low, width, digits, bins),
    st.integers(-1000, 1000), st.integers(1, 1000), st.integers(0, 3), st.sampled_from([None, 1, 2]),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(categoricals, numerics), min_size=1, max_size=4), listed)
def test_any_codebook_survives_the_round_trip(tmp_path_factory: pytest.TempPathFactory, made: Any, classes: Any) -> None:
    features: list[Feature] = []
    for number, each in enumerate(made):
        if each[0] == "c":
            features.append(Categorical(f"f{number}", tuple(each[1]), optional=each[2]))
        else:
            features.append(Numeric(f"f{number}", each[1], each[1] + each[2], 10.0 ** -each[3], bins=each[4]))
    try:
        book = Codebook("y", tuple(classes), tuple(features))
    except ConfigError:  # a class label that a spreadsheet would evaluate
        return
    for format in EXPORTS:
        assert again(book, format, tmp_path_factory.mktemp("export")).sha256 == book.sha256


def test_a_value_that_ends_in_a_dollar_sign_survives_the_round_trip(tmp_path: Path) -> None:
    book = Codebook("y", ("a", "b"), (Categorical("price", ("$",)), Categorical("unit", ("US$", "A$"))))
    assert again(book, "csvw", tmp_path) == book


def test_an_edited_export_is_followed(tmp_path: Path) -> None:
    """Each fact stands in one place: where the format can say it, people edit it there."""
    schema = FULL.to_frictionless()
    by_name = {field["name"]: field for field in schema["fields"]}
    by_name["age"]["constraints"]["maximum"] = 110
    by_name["sex"]["categories"] = ["f", "m", "d"]
    (tmp_path / "edited.json").write_text(json.dumps(schema))
    book = Codebook.from_frictionless(tmp_path / "edited.json")
    assert book.numeric("age").high == 110
    sex = book.feature("sex")
    assert isinstance(sex, Categorical)
    assert sex.values == ("f", "m", "d")
    assert book.provenance == "declared"


def test_an_export_that_answers_change_has_its_file_as_origin(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(FULL.to_frictionless()))
    book = Codebook.from_frictionless(tmp_path / "s.json", answers={"bounds": {"age": (0, 99)}})
    assert book.origin is not None
    assert (book.origin.format, book.provenance) == ("frictionless", "data dictionary")
    assert book.numeric("age").high == 99


def test_a_file_cannot_claim_another_origin_for_what_a_person_answered(tmp_path: Path) -> None:
    origin = {"format": "redcap", "specification": "of the ministry", "sha256": "0" * 64}
    own = json.dumps({"provenance": "declared", "classes": ["a", "b"], "origin": origin})
    columns = [{"name": "x"}, {"name": "y", "datatype": {"base": "integer", "minimum": 0, "maximum": 9}}]
    raw = json.dumps({"urn:blindbayes:codebook": own, "tableSchema": {"columns": columns}}).encode()
    (tmp_path / "c.json").write_bytes(raw)
    book = import_codebook("csvw", tmp_path / "c.json", {"target": "x"}).codebook
    assert book.provenance == "data dictionary"
    assert book.origin is not None
    assert (book.origin.format, book.origin.sha256) == ("csvw", hashlib.sha256(raw).hexdigest())


# -- the command line --------------------------------------------------------------------------------------------------


def test_the_command_imports_and_exports(tmp_path: Path) -> None:
    run = CliRunner().invoke
    path, out = str(FOLDER / "redcap" / "api_metadata.csv"), str(tmp_path / "codebook.toml")
    asked = run(command, ["import", "redcap", path])
    assert isinstance(asked.exception, OpenQuestions)
    flags = ["--target", "response", "--bound", "psa=0:1000", "--precision", "psa=0.1", "--unit", "psa=ng/ml", "--out", out]
    done = run(command, ["import", "redcap", path, *flags])
    assert done.exit_code == 0, done.output
    assert "participant" in done.output
    assert "--ignore-extra" in done.output
    book = Codebook.from_toml(out)
    assert book == Codebook.from_redcap(
        path, "response", {"bounds": {"psa": (0, 1000)}, "precision": {"psa": 0.1}, "units": {"psa": "ng/ml"}}
    )
    for format in EXPORTS:
        there = str(tmp_path / f"{format}.json")
        assert run(command, ["export", format, out, "--out", there]).exit_code == 0
        back = run(command, ["import", format, there])
        assert back.exit_code == 0, back.output
        assert book.sha256 in run(command, ["hash", out]).output


@pytest.mark.parametrize(
    ("flag", "message"),
    [("age", "NAME=LOW:HIGH"), ("age=1", "write age=LOW:HIGH"), ("age=a:b", "'a' is not a number"), ("=0:1", "NAME=LOW:HIGH")],
)
def test_a_flag_that_is_no_answer_is_refused(flag: str, message: str) -> None:
    done = CliRunner().invoke(command, ["import", "redcap", str(FOLDER / "redcap" / "survey.csv"), "--bound", flag])
    assert message in done.output + str(done.exception)


def test_a_string_without_its_end_takes_linear_time() -> None:
    """Of escaped quotes, each of which could begin a string: in quadratic time this test would not end."""
    with pytest.raises(ConfigError, match=r"is not valid JSON \(line 2\)"):
        import_codebook("frictionless", b'{"fields": [{}],\n"' + b'\\"' * 1_000_000)


def test_long_lists_take_linear_time(tmp_path: Path) -> None:
    """Counted, not timed: a hundred thousand codes would take hours in quadratic time."""
    many = [str(number) for number in range(100_000)]
    column: dict[str, Any] = {
        "titles": "x",
        "datatype": {"base": "string", "format": "|".join(many)},
        "null": [f"n{each}" for each in many[:1000]],
    }
    document = {"tableSchema": {"columns": [column, {"titles": "y", "datatype": {"base": "boolean"}}]}}
    (tmp_path / "long.json").write_text(json.dumps(document))
    book = Codebook.from_csvw(tmp_path / "long.json", "y")
    assert len(book.feature("x").missing) == 1000
    column["null"].append("one more")
    (tmp_path / "longer.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match="more than 1,000 missing values"):  # a table's list holds for every column
        Codebook.from_csvw(tmp_path / "longer.json", "y")
    assert again(book, "csvw", tmp_path).sha256 == book.sha256


def test_references_to_many_code_lists_are_resolved_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: how often a list is compared with a reference."""
    compared = []
    monkeypatch.setattr(sdmx_lists, "_parts_of", lambda ref, inner=sdmx_lists._parts_of: compared.append(ref) or inner(ref))
    many, lists, parts = 500, "", ""
    for at in range(many):
        agency, id_, version = ("A", f"L{at}", "1.0") if at % 2 else ("A", "L", f"{at}.0")  # of one id, and of several
        lists += f'<Codelist id="{id_}" agencyID="{agency}" version="{version}"><Code id="1"/><Code id="2"/></Codelist>'
        parts += dimension(f"d{at}", f"<Enumeration>urn=x={agency}:{id_}({version})</Enumeration>")
    book = import_codebook("sdmx", sdmx(lists, parts).encode(), {"target": "d0"}).codebook
    assert (len(book.features), len(compared) < 10 * many) == (many - 1, True)


@pytest.mark.parametrize("kind", ["<valrng><range min='0' max='1'/></valrng>", "<varFormat type='numeric'/>"])
def test_a_dictionary_of_too_many_features_is_refused_before_any_is_made(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "_feature", None)
    monkeypatch.setattr(questions, "_open", None)
    variables = "".join(f"<var name='v{at}'>{kind}</var>" for at in range(10_002))
    with pytest.raises(ConfigError, match="more than 10,000 features"):
        import_codebook("ddi", f"<codeBook><dataDscr>{variables}</dataDscr></codeBook>".encode(), {"target": "v0"})


def test_checkbox_columns_are_named_as_redcap_names_them() -> None:
    """Minus and full stop become an underscore, capitals small letters, and everything else is dropped."""
    row = 'race,f,,checkbox,Race,"1, a | -1, b | A.b, c | C d/e, d",,,,,,,,,,,,\ny,f,,yesno,Y,,,,,,,,,,,,,\n'
    book = import_codebook("redcap", (HEAD + row).encode(), {"target": "y"}).codebook
    assert [feature.name for feature in book.features] == ["race___1", "race____1", "race___a_b", "race___cde"]
