"""Private trainers in the manner of scikit-learn: bounds and classes are declared, every fit is paid."""

from __future__ import annotations

from lapwing.learn.trainers.additive import AdditiveTrees
from lapwing.learn.trainers.columns import Binned, Category, Column, Real
from lapwing.learn.trainers.kmeans import KMeans
from lapwing.learn.trainers.linear import LinearRegression
from lapwing.learn.trainers.logistic import LogisticRegression
from lapwing.learn.trainers.naive_bayes import NaiveBayes
from lapwing.learn.trainers.pca import PCA

__all__ = [
    "PCA",
    "AdditiveTrees",
    "Binned",
    "Category",
    "Column",
    "KMeans",
    "LinearRegression",
    "LogisticRegression",
    "NaiveBayes",
    "Real",
]
