"""Learning from growing data: private training, and models that are shown to be good before they leave.

Names are imported at their first use: `Stream` needs neither scikit-learn nor torch (extra `learn`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lapwing.lazy import lazy_names

if TYPE_CHECKING:
    from lapwing.learn.payer import EACH_ROW, LedgerPayer, PublicData
    from lapwing.learn.pipelines.model_card import card_text, model_card
    from lapwing.learn.pipelines.pipeline import Pipeline, load_pipeline
    from lapwing.learn.pipelines.run_files import load_model, log_to_mlflow, write_outputs
    from lapwing.learn.pipelines.training import train
    from lapwing.learn.search import Search
    from lapwing.learn.sgd import PrivateTrainer
    from lapwing.learn.stream import Stream
    from lapwing.learn.trainers.columns import Binned, Category, Real
    from lapwing.learn.trainers.count_models import AdditiveTrees, NaiveBayes
    from lapwing.learn.trainers.kmeans import KMeans
    from lapwing.learn.trainers.linear_models import PCA, LinearRegression, LogisticRegression

_HOMES = {
    "EACH_ROW": "payer", "LedgerPayer": "payer", "PublicData": "payer",
    "Pipeline": "pipelines.pipeline", "load_pipeline": "pipelines.pipeline", "train": "pipelines.training",
    "card_text": "pipelines.model_card", "model_card": "pipelines.model_card",
    "load_model": "pipelines.run_files", "log_to_mlflow": "pipelines.run_files",
    "write_outputs": "pipelines.run_files",
    "PrivateTrainer": "sgd", "Search": "search", "Stream": "stream",
    "AdditiveTrees": "trainers", "Binned": "trainers", "Category": "trainers", "KMeans": "trainers",
    "LinearRegression": "trainers", "LogisticRegression": "trainers", "NaiveBayes": "trainers",
    "PCA": "trainers", "Real": "trainers",
}  # fmt: skip
__all__ = [
    "EACH_ROW", "PCA", "AdditiveTrees", "Binned", "Category", "KMeans", "LedgerPayer", "LinearRegression",
    "LogisticRegression", "NaiveBayes", "Pipeline", "PrivateTrainer", "PublicData", "Real", "Search",
    "Stream", "card_text", "load_model", "load_pipeline", "log_to_mlflow", "model_card", "train",
    "write_outputs",
]  # fmt: skip
__getattr__ = lazy_names(__name__, _HOMES)
