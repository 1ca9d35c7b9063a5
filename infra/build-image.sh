#!/bin/sh
# For azd: make the registry, have it build the image, and note both for the parameter file.
set -eu
name=${SWATHMILL_DEPLOY_NAME:-swathmill}
tag="swathmill:$(date -u +%Y%m%d%H%M%S)"
az group create --name "$AZURE_RESOURCE_GROUP" --location "$AZURE_LOCATION" --output none
made=$(az deployment group create --resource-group "$AZURE_RESOURCE_GROUP" --name swathmill-registry \
    --template-file infra/bicep/registry.bicep --parameters "name=$name" \
    --query "[properties.outputs.registryName.value, properties.outputs.registryServer.value]" --output tsv)
registry=$(echo "$made" | head -n 1)
server=$(echo "$made" | tail -n 1)
az acr build --registry "$registry" --image "$tag" --file infra/Containerfile --output none .
azd env set SWATHMILL_DEPLOY_IMAGE "$server/$tag"
azd env set SWATHMILL_DEPLOY_REGISTRY "$server"
