// The registry of the image, and the identities that pull from it. `swathmill deploy` makes both before
// anything else, because the image has to be there when the processes start.
targetScope = 'resourceGroup'

@description('Region of every resource.')
param location string = resourceGroup().location

@description('Short name that every resource is named after.')
@minLength(3)
@maxLength(11)
param name string = 'swathmill'

@description('Built-in role AcrPull.')
var pullRole = '7f951dda-4ed3-4680-a7ca-43fe172d538d'

module identity 'identity.bicep' = {
  name: 'identity'
  params: {
    location: location
    name: name
  }
}

module workerIdentity 'identity.bicep' = {
  name: 'identity-worker'
  params: {
    location: location
    name: '${name}-worker'
  }
}

module poolIdentity 'identity.bicep' = {
  name: 'identity-pool'
  params: {
    location: location
    name: '${name}-pool'
  }
}

resource registry 'Microsoft.ContainerRegistry/registries@2025-04-01' = {
  // checkov:skip=CKV_AZURE_139: a build task of the registry needs its public end; pulling needs an identity
  // checkov:skip=CKV_AZURE_163: scanning is Defender for Cloud, which is of the subscription
  // checkov:skip=CKV_AZURE_164: content trust is deprecated; the image is named by the digest that the build gave
  // checkov:skip=CKV_AZURE_165: one region; the image can be built again from the checkout
  // checkov:skip=CKV_AZURE_166: quarantine would hold the image back until somebody releases it
  // checkov:skip=CKV_AZURE_167: untagged images are not many, and the sku Basic has no retention policy
  // checkov:skip=CKV_AZURE_233: one zone; running processes do not need the registry
  // checkov:skip=CKV_AZURE_237: dedicated data endpoints need the sku Premium
  name: '${name}${uniqueString(resourceGroup().id)}'
  location: location
  sku: {
    name: 'Basic'
  }
  properties: {
    adminUserEnabled: false
    anonymousPullEnabled: false
  }
}

resource pulling 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(registry.id, name, pullRole)
  scope: registry
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', pullRole)
    principalId: identity.outputs.principalId
    principalType: 'ServicePrincipal'
  }
}

resource workerPulling 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(registry.id, '${name}-worker', pullRole)
  scope: registry
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', pullRole)
    principalId: workerIdentity.outputs.principalId
    principalType: 'ServicePrincipal'
  }
}

resource poolPulling 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(registry.id, '${name}-pool', pullRole)
  scope: registry
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', pullRole)
    principalId: poolIdentity.outputs.principalId
    principalType: 'ServicePrincipal'
  }
}

output registryName string = registry.name
output registryServer string = registry.properties.loginServer
