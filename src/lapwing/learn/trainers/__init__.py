"""Private trainers in the manner of scikit-learn: bounds are declared, and every fit is charged."""

from __future__ import annotations

from lapwing.learn.trainers.columns import Binned, Category, Column, Real
from lapwing.learn.trainers.count_models import AdditiveTrees, NaiveBayes
from lapwing.learn.trainers.kmeans import KMeans
from lapwing.learn.trainers.linear_models import PCA, LinearRegression, LogisticRegression

__all__ = [
    "PCA", "AdditiveTrees", "Binned", "Category", "Column", "KMeans", "LinearRegression",
    "LogisticRegression", "NaiveBayes", "Real",
]  # fmt: skip
