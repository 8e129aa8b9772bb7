"""Public facts about the papers' datasets, written down once: bounds and values from what the attributes *are*.

No bound here is a minimum or maximum of the data. Numbers get round bounds that a person who knows the domain would state
before seeing rows (a wheat kernel is 4 to 8 mm long, a grey level is 0 to 255, an age is 15 to 95 in a labour survey);
categories are those of the data dictionaries that UCI publishes with the files, values that never occur included.
"""

from __future__ import annotations

from blindbayes.codebook import Categorical, Codebook, Feature, Numeric

MISSING = ("?",)


def _numbers(precision: float, **bounds: tuple[float, float]) -> tuple[Feature, ...]:
    return tuple(Numeric(name, low, high, precision) for name, (low, high) in bounds.items())


def _letters(**values: str) -> tuple[Feature, ...]:
    return tuple(
        Categorical(name.replace("_", "-"), tuple(letters), optional=name == "stalk_root") for name, letters in values.items()
    )


def _listed(name: str, values: str, *, optional: bool = False) -> Categorical:
    return Categorical(name, tuple(values.split()), optional=optional)


IRIS = Codebook(
    "class",
    ("Iris-setosa", "Iris-versicolor", "Iris-virginica"),
    _numbers(0.1, sepal_length=(4, 8), sepal_width=(1, 5), petal_length=(0, 8), petal_width=(0, 3)),  # cm
    max_rows=10_000,
)
SEEDS = Codebook(
    "class",
    ("1", "2", "3"),
    (
        *_numbers(0.01, area=(8, 24), perimeter=(10, 20)),  # mm^2, mm
        Numeric("compactness", 0.75, 1, 0.0001),  # 4 pi area / perimeter^2, of near-ellipses
        *_numbers(0.001, kernel_length=(4, 8), kernel_width=(2, 5), asymmetry=(0, 10), kernel_groove_length=(4, 8)),
    ),
    max_rows=10_000,
)
PIMA = Codebook(
    "class",
    ("0", "1"),
    (
        *_numbers(1, pregnancies=(0, 20), glucose=(0, 200), blood_pressure=(0, 140), skin_thickness=(0, 100), insulin=(0, 900)),
        Numeric("bmi", 0, 70, 0.1),
        Numeric("diabetes_pedigree", 0, 2.5, 0.001),
        Numeric("age", 20, 90, 1),  # women of 21 and older
    ),
    max_rows=100_000,
)
SKIN = Codebook("class", ("1", "2"), _numbers(1, B=(0, 255), G=(0, 255), R=(0, 255)), max_rows=10_000_000)
CAR = Codebook(
    "class",
    ("unacc", "acc", "good", "vgood"),
    (
        _listed("buying", "vhigh high med low"),
        _listed("maint", "vhigh high med low"),
        _listed("doors", "2 3 4 5more"),
        _listed("persons", "2 4 more"),
        _listed("lug_boot", "small med big"),
        _listed("safety", "low med high"),
    ),
    max_rows=100_000,
)
MUSHROOM = Codebook(
    "class",
    ("e", "p"),
    _letters(
        cap_shape="bcxfks",
        cap_surface="fgys",
        cap_color="nbcgrpuewy",
        bruises="tf",
        odor="alcyfmnps",
        gill_attachment="adfn",
        gill_spacing="cwd",
        gill_size="bn",
        gill_color="knbhgropuewy",
        stalk_shape="et",
        stalk_root="bcuezr",
        stalk_surface_above_ring="fyks",
        stalk_surface_below_ring="fyks",
        stalk_color_above_ring="nbcgopewy",
        stalk_color_below_ring="nbcgopewy",
        veil_type="pu",
        veil_color="nowy",
        ring_number="not",
        ring_type="ceflnpsz",
        spore_print_color="knbhrouwy",
        population="acnsvy",
        habitat="glmpuwd",
    ),
    max_rows=1_000_000,
    missing=MISSING,
)
_COUNTRIES = (
    "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan Greece South "
    "China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France "
    "Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia "
    "El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands "
)
ADULT = Codebook(
    "income",
    ("<=50K", ">50K"),
    (
        Numeric("age", 15, 95, 1),
        _listed(
            "workclass",
            "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked",
            optional=True,
        ),
        Numeric("fnlwgt", 0, 1_500_000, 1),
        _listed(
            "education",
            "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters 1st-4th 10th "
            "Doctorate 5th-6th Preschool",
        ),
        Numeric("education-num", 1, 16, 1),
        _listed(
            "marital-status",
            "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse",
        ),
        _listed(
            "occupation",
            "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners Machine-op-inspct "
            "Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces",
            optional=True,
        ),
        _listed("relationship", "Wife Own-child Husband Not-in-family Other-relative Unmarried"),
        _listed("race", "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black"),
        _listed("sex", "Female Male"),
        Numeric("capital-gain", 0, 100_000, 1),
        Numeric("capital-loss", 0, 5_000, 1),
        Numeric("hours-per-week", 0, 100, 1),
        _listed("native-country", _COUNTRIES, optional=True),
    ),
    max_rows=10_000_000,
    missing=MISSING,
)
_SIGNS = (
    "erythema scaling definite_borders itching koebner_phenomenon polygonal_papules follicular_papules "
    "oral_mucosal_involvement knee_and_elbow_involvement scalp_involvement family_history melanin_incontinence "
    "eosinophils_in_infiltrate PNL_infiltrate fibrosis_papillary_dermis exocytosis acanthosis hyperkeratosis "
    "parakeratosis clubbing_rete_ridges elongation_rete_ridges thinning_suprapapillary_epidermis spongiform_pustule "
    "munro_microabcess focal_hypergranulosis disappearance_granular_layer vacuolisation_damage_basal_layer "
    "spongiosis saw_tooth_appearance_retes follicular_horn_plug perifollicular_parakeratosis "
    "inflammatory_mononuclear_infiltrate band_like_infiltrate "
)
DERMATOLOGY = Codebook(
    "class",
    ("1", "2", "3", "4", "5", "6"),
    (
        # Graded 0 (absent) to 3 (largest amount possible) by the physician; family history is yes or no.
        *(_listed(sign, "0 1") if sign == "family_history" else Numeric(sign, 0, 3, 1) for sign in _SIGNS.split()),
        Numeric("age", 0, 100, 1, optional=True),
    ),
    max_rows=100_000,
    missing=MISSING,
)
_NUCLEI: dict[str, tuple[tuple[float, float, float], ...]] = {  # mean, standard error, worst: low, high, precision
    "radius": ((5, 30, 0.01), (0, 3, 0.001), (5, 40, 0.01)),
    "texture": ((5, 40, 0.01), (0, 5, 0.001), (10, 50, 0.01)),
    "perimeter": ((40, 200, 0.01), (0, 25, 0.01), (50, 260, 0.1)),
    "area": ((100, 2500, 0.1), (0, 600, 0.1), (150, 4500, 1)),
    "smoothness": ((0.05, 0.2, 0.0001), (0, 0.035, 0.00001), (0.05, 0.25, 0.0001)),
    "compactness": ((0, 0.4, 0.0001), (0, 0.15, 0.0001), (0, 1.1, 0.001)),
    "concavity": ((0, 0.5, 0.0001), (0, 0.4, 0.0001), (0, 1.3, 0.001)),
    "concave points": ((0, 0.25, 0.0001), (0, 0.06, 0.00001), (0, 0.3, 0.0001)),
    "symmetry": ((0.1, 0.35, 0.0001), (0, 0.08, 0.00001), (0.1, 0.7, 0.001)),
    "fractal dimension": ((0.04, 0.1, 0.00001), (0, 0.03, 0.00001), (0.05, 0.21, 0.0001)),
}
WDBC = Codebook(
    "class",
    ("0", "1"),
    tuple(
        Numeric(name, *bounds[at])
        for at, pattern in enumerate(("mean {}", "{} error", "worst {}"))
        for name, bounds in ((pattern.format(key), value) for key, value in _NUCLEI.items())
    ),
    max_rows=100_000,
)
DECLARED = {
    "adult": ADULT,
    "car": CAR,
    "dermatology": DERMATOLOGY,
    "iris": IRIS,
    "mushroom": MUSHROOM,
    "pima": PIMA,
    "seeds": SEEDS,
    "skin": SKIN,
    "wdbc": WDBC,
}
"""Codebooks by dataset name."""
