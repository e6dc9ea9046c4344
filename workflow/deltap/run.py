"""A run: its settings with every name resolved, and where its files are.

Snakemake reads this at every start, so nothing heavy (torch, pyarrow, …) may be imported here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from deltap.errors import DeltapError, nearest
from deltap.figures.variants import figure_variants, find_table, is_control, table_names
from deltap.files import digest
from deltap.hub import Repository
from deltap.manifest import MANIFEST
from deltap.models.directory import check_gguf, check_model_directory, model_files
from deltap.models.split import check_split
from deltap.questions.source import check_file
from deltap.settings import (
    REPLY_TOKENS,
    AnswersStage,
    ControlsStage,
    DatasetDownload,
    DatasetEntry,
    DatasetSource,
    DeltaPStage,
    FigureEntry,
    InferenceSettings,
    InferenceStage,
    InterventionsStage,
    JudgeStage,
    LabelsStage,
    ModelEntry,
    ModelSettings,
    PlannedLlm,
    PlanStage,
    PlotStage,
    ProbesStage,
    PromptSettings,
    QuestionsStage,
    RunSettings,
    Source,
    SpansStage,
    TableSource,
    VerdictStage,
    figure_kind,
    mistakes,
)
from deltap.yaml_file import read_yaml

Entry = TypeVar("Entry", bound=BaseModel)


class FigureJob(NamedTuple):
    """How a configured figure is made."""

    stage: PlotStage
    tables: list[Path]
    files: list[str]
    """Names, without folder."""


class Run:
    """Settings of a run, with the definitions of the models, data sets and figures that it names."""

    def __init__(self, config: Mapping[str, Any], config_directory: Path) -> None:
        """Check a configuration (a mapping as YAML gives it) against the definitions in ``config_directory``.

        Raises DeltapError with one line for each mistake.
        """
        try:
            self.settings = RunSettings.model_validate(config)
        except ValidationError as error:
            raise DeltapError("\n".join(f"configuration: {line}" for line in mistakes(error, RunSettings))) from None
        settings = self.settings
        files = {
            kind: [config_directory / f"{kind}s.yaml", *map(Path, getattr(settings, f"{kind}_files"))]
            for kind in ("model", "dataset", "figure")
        }
        self.models = _chosen(settings.models, "models", files["model"], ModelEntry)
        self.datasets = _chosen(settings.datasets, "datasets", files["dataset"], DatasetEntry)
        self.figures = _chosen(settings.figures, "figures", files["figure"], FigureEntry)
        llm = settings.llm.model if settings.llm else None
        self.llm = _chosen((llm,), "llm.model", files["model"], ModelEntry)[llm] if llm else None
        """The language model that finds exact tokens and judges, where one is run by the project's own engine."""
        self._refuse_thoughts()
        self.results = Path(settings.paths.results) / settings.run
        self._models, self._datasets = Path(settings.paths.models), Path(settings.paths.datasets)

    def _refuse_thoughts(self) -> None:
        thinking = [name for name, entry in self.models.items() if entry.thinking]
        if self.settings.given.answers and thinking:
            raise DeltapError(
                f"configuration: given.answers: model '{thinking[0]}' thinks before it answers, and given answers come "
                "without a thought; set 'thinking: false' for it"
            )

    @property
    def _loaded(self) -> dict[str, ModelEntry]:
        """Every model that some job loads."""
        asked = {str(self.settings.llm.model): self.llm} if self.settings.llm and self.llm else {}
        return {**self.models, **asked}

    def check_inputs(self) -> None:
        """Raise DeltapError with one line for each question file or model directory that is missing or incomplete, and
        for each model that its ranks do not divide.

        What is fetched by the workflow itself is not looked for, and a model that is not there yet is checked by its
        job.
        """
        mistakes = []
        for key, path in self.settings.paths:
            lost = next(
                (part for part in (Path(path), *Path(path).parents) if part.is_symlink() or part.exists()), None
            )
            if lost and not lost.is_dir():
                mistakes.append(f"configuration: paths.{key}: {lost} is no folder; remove it, or give another path")
        for name, dataset in self.datasets.items():
            try:
                check_file(dataset, name)
            except DeltapError as error:
                mistakes.append(str(error))
        mistakes += [
            f"configuration: given: no file {path}" for path in self.settings.given.files if not Path(path).is_file()
        ]
        for name, model in self._loaded.items():
            try:
                if model.source.is_directory:
                    check_model_directory(Path(str(model.source.path)))
                elif model.source.path:
                    check_gguf(Path(model.source.path))
                if model.ranks > 1 and (self.model_directory(name) / "config.json").is_file():
                    check_split(self.model_directory(name), model.engine, model.ranks)
            except DeltapError as error:
                mistakes.append(f"model '{name}': {error}")
        if mistakes:
            raise DeltapError("\n".join(mistakes))

    def model_directory(self, model: str) -> Path:
        """Return the directory of a model's weights and tokenizer."""
        source = self._loaded[model].source
        return Path(str(source.path)) if source.is_directory else self._models / _model_slug(source)

    def model_inputs(self, model: str) -> list[Path]:
        """Return the files whose change means another model: its own, or the manifest of a fetched one."""
        directory = self.model_directory(model)
        return model_files(directory) if self._loaded[model].source.is_directory else [directory / MANIFEST]

    def question_file(self, dataset: str) -> Path:
        """Return a data set's file, or the manifest of its download."""
        entry = self.datasets[dataset]
        return Path(entry.path) if entry.path else self._datasets / _dataset_slug(_download(entry)) / MANIFEST

    @property
    def model_downloads(self) -> dict[str, Source]:
        """The models that are fetched or converted, by the name of the directory that keeps them."""
        sources = (entry.source for entry in self._loaded.values())
        return {_model_slug(source): source for source in sources if not source.is_directory}

    @property
    def dataset_downloads(self) -> dict[str, DatasetDownload]:
        """The question sets that are downloaded, by the name of the directory that keeps them."""
        downloads = (_download(entry) for entry in self.datasets.values() if entry.hub)
        return {_dataset_slug(download): download for download in downloads}

    def not_downloaded(self) -> list[Repository]:
        """Return the hub's repositories that the run still has to download."""
        models = [
            Repository("model", source.hub, source.revision)
            for slug, source in self.model_downloads.items()
            if source.hub and not (self._models / slug / MANIFEST).exists()
        ]
        datasets = [
            Repository("dataset", download.hub, download.revision)
            for slug, download in self.dataset_downloads.items()
            if not (self._datasets / slug / MANIFEST).exists()
        ]
        return list(dict.fromkeys([*models, *datasets]))

    def prompt(self, model: str) -> PromptSettings:
        """Return how a model is asked."""
        return self.models[model].prompt or self.settings.prompt

    def questions_stage(self, dataset: str) -> QuestionsStage:
        """Return what the questions of ``dataset`` depend on."""
        return QuestionsStage(
            dataset=dataset,
            entry=_part(self.datasets[dataset], DatasetSource),
            questions=self.settings.questions,
            examples=self.settings.prompt.examples,
        )

    def asks_llm(self, extractor: str) -> bool:
        """Tell whether an extractor asks the language model, which needs the answers before activations are read."""
        return self.settings.llm is not None and extractor in ("auto", "llm")

    def answers_alone(self, extractor: str) -> bool:
        """Tell whether answers are a job of their own: the language model needs them, or several extractors do."""
        return self.asks_llm(extractor) or len(self.settings.extractors) > 1

    def answers_stage(self, model: str, dataset: str) -> AnswersStage:
        """Return what the answers of ``model`` to ``dataset`` depend on, where they are generated alone."""
        return AnswersStage(
            model=model,
            dataset=dataset,
            entry=_part(self.models[model], ModelSettings),
            prompt=self.prompt(model),
            inference=_part(self.settings.inference, InferenceSettings),
            bad_rows=self.settings.given.bad_rows,
        )

    def launch_options(self, model: str) -> list[str]:
        """Return the options of ``scripts/launch.py`` for a job that loads ``model``."""
        entry = self._loaded[model]
        return [
            *("--ranks", str(entry.ranks), "--threads", str(entry.threads)),
            *("--engine", entry.engine, "--device", entry.device, "--nodes", str(entry.nodes)),
        ]

    def spans_stage(self, model: str, dataset: str, extractor: str) -> SpansStage:
        """Return what a language model's exact tokens depend on."""
        return SpansStage(
            model=model,
            dataset=dataset,
            extractor=extractor,  # type: ignore[arg-type]
            bad_rows=self.settings.given.bad_rows,
            **self.judge_stage().model_dump(),
        )

    def judge_stage(self) -> JudgeStage:
        """Return what a language model's judgements depend on."""
        llm = self.settings.llm
        assert llm is not None
        entry = self.llm and _part(self.llm, ModelSettings)
        if entry and (llm.max_new_tokens or not entry.thinking):
            entry = entry.model_copy(update={"max_new_tokens": llm.max_new_tokens or REPLY_TOKENS})
        return JudgeStage(llm=llm, entry=entry)

    def inference_stage(self, model: str, dataset: str, extractor: str) -> InferenceStage:
        """Return what the inference of ``model`` on ``dataset`` depends on."""
        return InferenceStage(extractor=extractor, **dict(self.answers_stage(model, dataset)))

    def interventions_stage(self, model: str, dataset: str, extractor: str) -> InterventionsStage:
        """Return what the other cuts of ``model`` on ``dataset`` depend on."""
        settings = self.settings
        assert settings.controls is not None
        assert settings.controls.interventions is not None
        return InterventionsStage(
            model=model,
            dataset=dataset,
            extractor=extractor,  # type: ignore[arg-type]
            entry=_part(self.models[model], ModelSettings),
            prompt=self.prompt(model),
            chunk_questions=settings.inference.chunk_questions,
            interventions=settings.controls.interventions,
            site=settings.controls.site,
            position=settings.controls.position,
            seed=settings.controls.seed,
        )

    def intervention_files(self) -> list[str]:
        """Return the name ``<intervention>.<draw>`` of every other cut, none where there are no interventions."""
        controls = self.settings.controls
        return controls.interventions.files if controls and controls.interventions else []

    def figure_jobs(self) -> dict[str, FigureJob]:
        """Return what each configured figure is drawn from, how, and into which files.

        Raises DeltapError when a figure asks for what the run does not measure, or a table from elsewhere is not there.
        """
        jobs = {}
        for name in self.figures:
            stage = self._figure_stage(name)
            entry = next(iter(stage.figures.values()))
            tables = [self.results / f"{table_names(entry)[0]}.parquet"]
            try:
                # Whole paths: no rule makes them, even where they lie in this run's own results.
                tables = [find_table(table.path, entry).resolve() for table in entry.tables or ()] or tables
            except DeltapError as error:
                raise DeltapError(f"figure {name!r}: {error}") from None
            variants = stage.figures.items()
            files = [f"{stem}.{kind}" for stem, variant in variants for kind in variant.formats or stage.formats]
            jobs[name] = FigureJob(stage, tables, files)
        return jobs

    def partial_figures(self) -> PlotStage:
        """Return how an unfinished run is drawn: every figure of its own tables."""
        settings = self.settings
        stages = [self._figure_stage(name) for name in self.figures]
        return PlotStage(
            figures={name: entry for stage in stages for name, entry in stage.figures.items() if not entry.tables},
            formats=settings.formats,
            anchors=settings.anchors,
            reference_class=settings.reference_class,
            bootstrap=settings.bootstrap,
        )

    def _figure_stage(self, figure: str) -> PlotStage:
        settings, entry = self.settings, self.figures[figure]
        if settings.figure_tables and not entry.tables:
            entry = entry.model_copy(update={"tables": (TableSource(path=settings.figure_tables),)})
        if not entry.tables:
            self._check_choice(figure, entry)
            # What the run's summary was made with need not be computed.
            usual = {"reference_class": settings.reference_class, "interval": settings.bootstrap.level}
            same = [key for key, value in usual.items() if getattr(entry, key, None) == value]
            entry = entry.model_copy(update=dict.fromkeys(same))
        sites, positions = settings.inference.sites, settings.inference.positions
        if settings.controls and is_control(entry):
            sites, positions = (settings.controls.site,), (settings.controls.position,)
        variants = figure_variants(figure, entry, sites, positions, settings.groupings, settings.extractors)
        # Nothing that the figure does not use, lest it be drawn again for nothing.
        used: dict[str, Any] = {}
        if entry.kind == "delta_p":
            used["anchors"] = settings.anchors
        if entry.kind in ("delta_p", "flip_rate") and (entry.tables or table_names(entry)[0] != "delta_p_summary"):
            used |= {"bootstrap": settings.bootstrap, "reference_class": settings.reference_class}
        if entry.kind == "delta_p_distribution":
            used["reference_class"] = settings.reference_class
        return PlotStage(figures=dict(variants), formats=settings.formats, **used)

    def _check_choice(self, figure: str, entry: FigureEntry) -> None:
        for key, valid in (("models", self.models), ("datasets", self.datasets)):
            for name in getattr(entry, key) or ():
                if name not in valid:
                    raise DeltapError(f"figure {figure!r}: {key}: {name!r} is not in this run{nearest(name, valid)}")
        controls = self.settings.controls
        if not is_control(entry):
            return
        if not controls:
            raise DeltapError(f"figure {figure!r}: it shows a control, and this run has none: give it 'controls: {{}}'")
        shown = [getattr(entry, key, None) for key in ("intervention", "estimate", "beside")]
        for name in (*shown, *(getattr(entry, "controls", None) or ())):
            if name and not controls.computes(name):
                raise DeltapError(f"figure {figure!r}: it shows {name!r}, which this run's 'controls' do not compute")

    def labels_stage(self) -> LabelsStage:
        """Return what labels depend on."""
        return LabelsStage(labels=self.settings.labels, bad_rows=self.settings.given.bad_rows)

    def probes_stage(self) -> ProbesStage:
        """Return what probes depend on."""
        inference = self.settings.inference
        return ProbesStage(probe=self.settings.probe, sites=inference.sites, positions=inference.positions)

    def controls_stage(self) -> ControlsStage:
        """Return what the controls of a series depend on."""
        settings = self.settings
        assert settings.controls is not None
        return ControlsStage(
            controls=settings.controls,
            probe=settings.probe,
            anchors=settings.anchors,
            groupings=settings.groupings,
            reference_class=settings.reference_class,
            bootstrap=settings.bootstrap,
        )

    def delta_p_stage(self, anchor: str) -> DeltaPStage:
        """Return what ΔP of an anchor's samples depends on."""
        return DeltaPStage(
            anchor=anchor,  # type: ignore[arg-type]
            groupings=self.settings.groupings,
            reference_class=self.settings.reference_class,
        )

    def configuration(self) -> dict[str, Any]:
        """Return the whole configuration: every key of the run, and the definitions of what it names."""
        named: dict[str, Mapping[str, BaseModel]] = {
            "models": self._loaded,
            "datasets": self.datasets,
            "figures": self.figures,
        }
        return {
            "run": self.settings.model_dump(mode="json"),
            **{
                kind: {name: entry.model_dump(mode="json") for name, entry in entries.items()}
                for kind, entries in named.items()
            },
        }

    def plan_stage(self) -> PlanStage:
        """Return what the plan depends on."""
        settings, inference = self.settings, self.settings.inference
        return PlanStage(
            models=self.models,
            directories={name: str(self.model_directory(name)) for name in self.models},
            datasets={name: _part(entry, DatasetSource) for name, entry in self.datasets.items()},
            number=settings.questions.number,
            test=settings.questions.splits.test,
            sites=len(inference.sites),
            positions=len(inference.positions),
            shards=inference.shards,
            extractors=len(settings.extractors),
            answers_apart=any(map(self.answers_alone, settings.extractors)),
            llm=self._planned_llm(),
            interventions=settings.controls.interventions if settings.controls else None,
            plan=settings.plan,
        )

    def _planned_llm(self) -> PlannedLlm | None:
        llm, extractors = self.settings.llm, self.settings.extractors
        if not llm:
            return None
        return PlannedLlm(
            spans=sum(map(self.asks_llm, extractors)),
            judgements=len(extractors) if self.settings.labels.match == "llm" else 0,
            name=llm.model,
            entry=self.llm,
            directory=str(self.model_directory(llm.model)) if llm.model else None,
        )

    def verdict_stage(self) -> VerdictStage:
        """Return what the verdict depends on; of several extractors the first one's curves are judged."""
        return VerdictStage(
            extractor=self.settings.extractors[0], verdict=self.settings.verdict, bootstrap=self.settings.bootstrap
        )

    def labels(self) -> dict[str, list[list[str]]]:
        """Return names and labels of models and data sets, in the order of the configuration."""
        return {
            "model": [[name, entry.label] for name, entry in self.models.items()],
            "dataset": [[name, entry.label] for name, entry in self.datasets.items()],
        }


def _model_slug(source: Source) -> str:
    """Return the name of the directory that a fetched model is kept in; no two sources share one."""
    if source.wheel and source.sha256:
        return _slug(f"{source.wheel.replace('==', '-')}-{source.sha256[:8]}")
    if source.path:
        path = Path(source.path).resolve()
        return _slug(f"{path.stem}-{digest(str(path))[:8]}")
    return _slug(f"{source.hub}@{source.revision or 'main'}")


def _dataset_slug(download: DatasetDownload) -> str:
    """Return the name of the directory that a downloaded question set is kept in; no two share one."""
    parts = (f"{download.hub}@{download.revision or 'main'}", download.subset, download.hub_split)
    return _slug(".".join(part for part in parts if part))


def _slug(name: str) -> str:
    return quote(name.replace("/", "--"), safe="@+")


def _download(entry: DatasetSource) -> DatasetDownload:
    """Return what a data set of the hub is downloaded by."""
    return _part(entry, DatasetDownload)


def _part(whole: BaseModel, kind: type[Entry]) -> Entry:
    """Return the fields of ``whole`` that ``kind`` has."""
    return kind.model_validate({name: getattr(whole, name) for name in kind.model_fields})


def _chosen(names: tuple[str, ...], key: str, files: list[Path], kind: type[Entry]) -> dict[str, Entry]:
    """Return the entries called ``names`` from definition files; of two with one name the later file's counts."""
    raw: dict[str, tuple[Path, Any]] = {}
    for file in files:
        raw |= {name: (file, value) for name, value in definitions(file).items()}
    unknown = [name for name in names if name not in raw]
    if unknown:
        raise DeltapError(
            "\n".join(f"configuration: {key}: unknown name '{name}'{nearest(name, raw)}" for name in unknown)
        )
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DeltapError(f"configuration: {key}: {', '.join(repeated)} listed twice")
    return {name: definition(name, *raw[name], kind) for name in names}


def definitions(file: Path) -> dict[str, Any]:
    """Return name → definition of a definition file, unchecked; raise DeltapError where it is none."""
    value = read_yaml(file)
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise DeltapError(f"{file}: expected a mapping from names to definitions")
    return value


def definition(name: str, file: Path, value: Any, kind: type[Entry]) -> Entry:
    """Return the definition ``value`` of ``file``, checked, with its paths starting at the file's folder.

    A figure is checked by its kind's own class. Raises DeltapError with one line for each mistake.
    """
    if issubclass(kind, FigureEntry):
        kind = figure_kind(value)  # type: ignore[assignment]
    try:
        return kind.model_validate(_resolved(value, file.parent))
    except ValidationError as error:
        raise DeltapError("\n".join(f"{file}: {name}: {line}" for line in mistakes(error, kind))) from None


_PATHS = ("path", "ids_file", "tables")


def _resolved(value: Any, folder: Path) -> Any:
    """Return a definition in which every path starts at the folder of the file that it stands in."""
    if isinstance(value, list):
        return [_resolved(inner, folder) for inner in value]
    if not isinstance(value, dict):
        return value
    return {key: _at(folder, inner) if key in _PATHS else _resolved(inner, folder) for key, inner in value.items()}


def _at(folder: Path, value: Any) -> Any:
    """Return a path, or each of a list of paths, from ``folder`` on."""
    if isinstance(value, list):
        return [_at(folder, inner) for inner in value]
    return str(folder / value) if isinstance(value, str) else _resolved(value, folder)
